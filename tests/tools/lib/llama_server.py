"""Starts serve with the options of llama-server: llama_server.py KNAPSACK MODEL OPTIONS...

Options without a counterpart are dropped with their values."""

import os
import sys

SAME = {
    "--port",
    "--alias",
    "--api-key",
    "--slot-save-path",
    "--threads",
    "--seed",
    "--temp",
    "--n-predict",
    "--chat-template",
}
FLAGS = {"--no-slots", "--no-ui"}
ALONE = {
    "--slots",
    "--metrics",
    "--offline",
    "--cont-batching",
    "--kv-unified",
    "--jinja",
    "--no-jinja",
    "--verbose",
    "--context-shift",
    "--swa-full",
    "--embedding",
    "--reranking",
    "--no-cache-idle-slots",
    "--backend_sampling",
    "--no-mmproj",
    "--ui-mcp-proxy",
    "--no-models-autoload",
}


def translate(options):
    """Options of llama-server -> options of serve."""
    given, made = {}, []
    i = 0
    while i < len(options):
        name = options[i]
        value = None if name in FLAGS | ALONE else options[i + 1]
        given[name] = value
        i += 1 if value is None else 2
        if name in SAME:
            made += [name, value]
        elif name in FLAGS:
            made.append(name)
    n = int(given.get("--parallel", 1))
    made += ["--conversations", str(n)]
    if "--ctx-size" in given:  # that of all slots together
        made += ["-c", str(int(given["--ctx-size"]) // n)]
    made += ["--kv", "exact"]
    if "--host" in given:
        made += ["--host", given["--host"].split(",")[0]]
    if "--metrics" not in given:
        made.append("--no-metrics")
    if "--chat-template-file" in given:
        made += ["--chat-template", given["--chat-template-file"]]
    if given.get("--cors-origins") != "localhost" and "--tools" not in given:
        made += ["--cors-origin", "any"]
    return made


if __name__ == "__main__":
    knapsack, model = sys.argv[1:3]
    memory = os.environ.get("KNAPSACK_TEST_MEMORY", "640MiB")
    base = [knapsack, "serve", "-m", model, "--memory", memory, "--device", "cpu"]
    os.execv(knapsack, base + translate(sys.argv[3:]))
