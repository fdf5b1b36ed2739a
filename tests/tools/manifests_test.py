#!/usr/bin/env python3
"""The manifests, the Dockerfile and the configurations of examples/ against the program: options,
paths, gauges and times. With kubernetes-validate from PyPI also against the schemas of Kubernetes.
"""

import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import check, knapsack, run_tests  # noqa: E402
from serve_cases import write_chat_model  # noqa: E402
from server import Server, skip_unless_built  # noqa: E402

try:
    import yaml
except ImportError:
    print("skipped: needs PyYAML")
    sys.exit(77)
try:
    import kubernetes_validate
except ImportError:
    kubernetes_validate = None

FOLDER = "examples/kubernetes"
# Of kinds that the cluster does not define itself, and what they must have.
OTHER_KINDS = {"PodMonitor": ["selector", "podMetricsEndpoints"]}
KINDS = {
    "Secret": ["stringData"],
    "PersistentVolumeClaim": ["spec"],
    "Deployment": ["spec"],
    "Service": ["spec"],
    "PodDisruptionBudget": ["spec"],
    "Ingress": ["spec"],
    "HorizontalPodAutoscaler": ["spec"],
}
UNITS = {"Mi": 1 << 20, "Gi": 1 << 30, "MiB": 1 << 20, "GiB": 1 << 30}
NOT_PLANNED = 24 << 20  # bytes that a worker may hold beyond its plan


def size(text):
    number, unit = re.match(r"(\d+)(\w+)$", text).groups()
    return int(number) * UNITS[unit]


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def documents():
    found = {}
    for path in sorted(glob.glob(f"{FOLDER}/*.yaml")):
        for document in yaml.safe_load_all(read(path)):
            if "kind" in document:
                found[document["kind"], document["metadata"]["name"]] = document
    return found


def test_schemas(found):
    for (kind, name), document in found.items():
        if kind in OTHER_KINDS:
            check(all(k in document["spec"] for k in OTHER_KINDS[kind]), f"{kind} {name}")
        elif kubernetes_validate:
            version = kubernetes_validate.latest_version()
            try:
                kubernetes_validate.validate(document, version, strict=True)
            except kubernetes_validate.ValidationError as e:
                check(False, f"{kind} {name}: {str(e).splitlines()[0]}")
            else:
                check(True, "")
        else:
            check("apiVersion" in document, f"{kind} {name}: apiVersion")
            check(all(k in document for k in KINDS[kind]), f"{kind} {name}: {KINDS[kind]}")
    check(len(found) >= 9, f"{len(found)} objects")


def test_references(found):
    """Names that one object has of another."""
    pod = found["Deployment", "knapsack"]["spec"]["template"]
    labels, spec = pod["metadata"]["labels"], pod["spec"]
    (container,) = spec["containers"]
    volumes = {v["name"]: v for v in spec["volumes"]}
    for mount in container["volumeMounts"]:
        check(mount["name"] in volumes, f"a volume {mount['name']}")
    for volume in volumes.values():
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        secret = volume.get("secret", {}).get("secretName")
        check(
            ("PersistentVolumeClaim", claim) in found or ("Secret", secret) in found,
            f"the source of the volume {volume['name']}",
        )
    for kind, path in (
        ("Service", ["selector"]),
        ("PodDisruptionBudget", ["selector", "matchLabels"]),
        ("PodMonitor", ["selector", "matchLabels"]),
        ("Deployment", ["selector", "matchLabels"]),
    ):
        selector = found[kind, "knapsack"]["spec"]
        for key in path:
            selector = selector[key]
        check(selector == labels, f"{kind} selects {selector}, pods have {labels}")
    keys = found["Secret", "knapsack-keys"]["stringData"]
    check(keys["metrics"] in keys["keys"].split("\n"), "Prometheus' key is one of the keys")
    target = found["HorizontalPodAutoscaler", "knapsack"]["spec"]["scaleTargetRef"]
    check((target["kind"], target["name"]) in found, f"the target {target}")


def arguments(container):
    given = {}
    for argument in container["args"][1:]:
        name, _, value = argument.partition("=")
        given[name] = value
    return given


def test_worker(found, server):
    """Options, probes, times and sizes of the worker."""
    spec = found["Deployment", "knapsack"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    given = arguments(container)
    known = knapsack("serve", "--help").out.decode()
    for name in given:
        check(re.search(rf"(^|[ ,]){name}\b", known, re.M), f"serve has no {name}")
    drain = int(given["--drain"]) + int(given["--drain-delay"])
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    grace = spec["terminationGracePeriodSeconds"]
    check(grace >= drain + pause + 10, f"{grace} s of grace for {pause} + {drain} s")
    ready = container["readinessProbe"]
    noticed = ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"]
    check(int(given["--drain-delay"]) >= noticed, f"draining is noticed after {noticed} s")
    limit = size(container["resources"]["limits"]["memory"])
    planned = size(given["--memory"])
    check(limit >= planned + NOT_PLANNED, f"a limit of {limit} for a plan of {planned}")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        path = container[probe]["httpGet"]["path"]
        status = server.request("GET", path, headers={"Authorization": ""}).status
        check(status == 200, f"{probe}: {path} without a key is {status}")
    check(container["livenessProbe"]["httpGet"]["path"] == "/livez", "liveness is not readiness")


def test_gauge(found, server):
    """The adapter's series is a gauge of /metrics, and the autoscaler uses the adapter's name."""
    (rule,) = yaml.safe_load(read(f"{FOLDER}/adapter-values.yaml"))["rules"]["custom"]
    series = rule["seriesQuery"].split("{")[0]
    text = server.get("/metrics").body.decode()
    check(f"# TYPE {series} gauge" in text.split("\n"), f"{series} is a gauge of /metrics")
    (metric,) = found["HorizontalPodAutoscaler", "knapsack"]["spec"]["metrics"]
    name = metric["pods"]["metric"]["name"]
    check(name == rule["name"]["as"], f"{name} is not {rule['name']['as']}")
    (endpoint,) = found["PodMonitor", "knapsack"]["spec"]["podMetricsEndpoints"]
    check(server.get(endpoint["path"]).status == 200, endpoint["path"])


def test_options_in_texts():
    """Options of serve in the pages and configurations of the examples."""
    known = knapsack("serve", "--help").out.decode() + knapsack("plan", "--help").out.decode()
    pages = [p for d in ("proxy", "ray", "kubernetes") for p in glob.glob(f"examples/{d}/*")]
    for page in [*filter(os.path.isfile, pages), "docs/scaling.md"]:
        for line in read(page).split("\n"):
            if not re.match(r"(docker|helm|kubectl) ", line):
                for name in re.findall(r"(?<![\w-])--[a-z][a-z-]+", line):
                    check(
                        re.search(rf"(^|[ ,]){name}\b", known, re.M),
                        f"{page}: serve has no {name}",
                    )


def test_dockerfile():
    text = read("examples/docker/Dockerfile")
    copied = re.findall(r"^COPY (?!--from)(\S+)", text, re.M)
    check(copied and all(os.path.exists(path) for path in copied), f"copied: {copied}")
    script = ". tools/packages.sh && echo $build_packages && type -t install_packages"
    r = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=20)
    check(
        r.returncode == 0 and "g++" in r.stdout and "function" in r.stdout,
        f"the names that the Dockerfile uses: {r.stdout} {r.stderr}",
    )
    check("$build_packages" in text and "install_packages" in text, "the packages")


def test(folder):
    skip_unless_built()
    found = documents()
    test_schemas(found)
    test_references(found)
    model = write_chat_model(os.path.join(folder, "tiny.gguf"))
    with Server(model, "--memory", "48MiB", "--device", "cpu") as server:
        test_worker(found, server)
        test_gauge(found, server)
    test_options_in_texts()
    test_dockerfile()


run_tests(test)
