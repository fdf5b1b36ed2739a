"""A Ray Serve deployment of `knapsack serve`. Each replica starts one worker, a process on a free
port of its machine, and passes requests and streams on to it.

    serve run serve_knapsack:app model=/models/smollm2.gguf memory=256MiB max_replicas=2
"""

import asyncio
import ctypes
import os
import signal

HEADER = "x-conversation-id"
# Read by Ray when it starts: requests with this header go to the same replica.
os.environ.setdefault("RAY_SERVE_SESSION_ID_HEADER_KEY", HEADER)

import aiohttp  # noqa: E402
from pydantic import BaseModel  # noqa: E402
from ray import serve  # noqa: E402
from ray.serve.config import RequestRouterConfig  # noqa: E402
from starlette.requests import Request  # noqa: E402
from starlette.responses import JSONResponse, StreamingResponse  # noqa: E402

ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
# Headers about one connection, and the host name, which a worker on 127.0.0.1 checks.
HOP = {"connection", "keep-alive", "transfer-encoding", "upgrade", "te", "trailer", "host"}
PR_SET_PDEATHSIG = 1


class Settings(BaseModel):
    """The arguments of `serve run`."""

    model: str
    binary: str = "knapsack"
    memory: str = "256MiB"
    conversations: int = 4
    queue: int = 4
    threads: int = 1
    drain: int = 60  # seconds that running answers may take when a replica stops
    options: str = ""  # more options of `knapsack serve`
    min_replicas: int = 1
    max_replicas: int = 2
    upscale_delay: float = 5
    downscale_delay: float = 300


def end_with_parent():
    """The worker gets SIGTERM if its replica is killed. Called in the new process."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@serve.deployment(health_check_period_s=2, health_check_timeout_s=10)
class KnapsackWorker:
    async def __init__(self, s: Settings):
        """Starts the worker, and waits until its model is loaded."""
        command = [s.binary, "serve", "-m", s.model, "--memory", s.memory, "--threads", s.threads]
        command += ["--conversations", s.conversations, "--queue", s.queue, "--drain", s.drain]
        command += ["--port", 0, *s.options.split()]
        self.process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=end_with_parent,
        )
        begin = b"listening on "
        async for line in self.process.stderr:
            print(line.decode(errors="replace"), end="", flush=True)
            if line.startswith(begin):
                self.url = line[len(begin) :].decode().strip()
                break
        else:
            raise RuntimeError(f"knapsack serve ended with {await self.process.wait()}")
        self.log = asyncio.create_task(self.copy_log())
        self.session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            connector=aiohttp.TCPConnector(limit=0),
            auto_decompress=False,
        )
        while await self.health() != 200:
            if self.process.returncode is not None:
                raise RuntimeError(f"knapsack serve ended with {self.process.returncode}")
            await asyncio.sleep(0.1)

    async def copy_log(self):
        async for line in self.process.stderr:
            print(line.decode(errors="replace"), end="", flush=True)

    async def health(self):
        try:
            async with self.session.get(self.url + "/health") as answer:
                return answer.status
        except aiohttp.ClientError:
            return 0

    async def check_health(self):
        """Serve replaces a replica that fails this."""
        if self.process.returncode is not None:
            raise RuntimeError(f"knapsack serve ended with {self.process.returncode}")
        status = await self.health()
        if status != 200:
            raise RuntimeError(f"/health answers {status}")

    async def __call__(self, request: Request):
        path = request.url.path + ("?" + request.url.query if request.url.query else "")
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in HOP]
        try:
            answer = await self.session.request(
                request.method, self.url + path, headers=headers, data=await request.body()
            )
        except aiohttp.ClientError as e:
            error = {"code": 503, "message": str(e), "type": "unavailable_error"}
            return JSONResponse({"error": error}, 503, {"Retry-After": "2"})
        kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
        return StreamingResponse(self.pieces(answer), answer.status, kept)

    async def pieces(self, answer):
        """What the worker sends, as it comes. A client that leaves cancels the answer."""
        try:
            async for piece in answer.content.iter_any():
                yield piece
        finally:
            answer.close()

    async def __del__(self):
        """The replica stops: Serve has sent its last request. The worker parks and ends."""
        if getattr(self, "process", None) is None or self.process.returncode is not None:
            return
        self.process.terminate()
        code = await self.process.wait()
        await self.session.close()
        print(f"knapsack serve ended with {code}", flush=True)


def app(args: Settings):
    """The application, for `serve run` and for configuration files of Serve."""
    return KnapsackWorker.options(
        ray_actor_options={"num_cpus": args.threads},
        # Full workers are not given more requests: the rest waits in Serve.
        max_ongoing_requests=args.conversations + args.queue,
        graceful_shutdown_timeout_s=args.drain + 15,
        autoscaling_config={
            "min_replicas": args.min_replicas,
            "max_replicas": args.max_replicas,
            "target_ongoing_requests": args.conversations,
            "upscale_delay_s": args.upscale_delay,
            "downscale_delay_s": args.downscale_delay,
        },
        request_router_config=RequestRouterConfig(request_router_class=ROUTER),
    ).bind(args)
