"""A pytest plugin that runs llama-server's suite against serve, with the changes of llama_tests.

It stands in for the suite's conftest.py, which downloads models."""

import json
import os

import pytest
import utils  # of the suite
from llama_tests import CHANGES, reason_of

utils.ServerPreset.load_all = staticmethod(lambda: None)
outcomes, current = {}, []  # name -> (outcome, reason); changes of the running test


def name_of(nodeid):
    return nodeid.removeprefix("unit/")


def replaced(value, consts):
    if isinstance(value, tuple):
        return tuple(replaced(x, consts) for x in value)
    return next(
        (new for old, new in consts.items() if type(old) is type(value) and old == value), value
    )


def pytest_collection_modifyitems(items):
    done = set()
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        reason = reason_of(name_of(item.nodeid), params, item.get_closest_marker("slow"))
        if reason:
            item.add_marker(pytest.mark.skip(reason="not applicable: " + reason))
            continue
        item.changes = [c for c in CHANGES if c.applies(name_of(item.nodeid), dict(params))]
        for change in item.changes:
            params.update(change.params)
            if change.consts and item.obj not in done:
                code = item.obj.__code__
                item.obj.__code__ = code.replace(co_consts=replaced(code.co_consts, change.consts))
                done.add(item.obj)


start, make_request = utils.ServerProcess.start, utils.ServerProcess.make_request


def start_changed(self, *args, **kw):
    for change in current:
        for name, value in change.server.items():
            setattr(self, name, value)
    return start(self, *args, **kw)


def make_request_changed(self, method, path, data=None, *args, **kw):
    more = {k: v for change in current for k, v in change.body.items()}
    if path == "/completion" and more:
        data = {**data, **more}
    return make_request(self, method, path, data, *args, **kw)


utils.ServerProcess.start = start_changed
utils.ServerProcess.make_request = make_request_changed


@pytest.fixture(autouse=True)
def stop_servers(request):
    current[:] = getattr(request.node, "changes", [])
    module, match = request.module, getattr(request.module, "match_regex", None)
    if any(c.text for c in current):
        module.match_regex = lambda regex, text: isinstance(text, str) and len(text) > 0
    yield
    module.match_regex = match
    for server in list(utils.server_instances):
        server.stop()


def pytest_runtest_logreport(report):
    name = name_of(report.nodeid)
    if report.skipped:
        outcomes[name] = ("skipped", str(report.longrepr[2]))
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        outcomes[name] = ("failed", crash.message if crash else str(report.longrepr)[-300:])
    elif report.when == "call":
        outcomes[name] = ("passed", "")


def pytest_sessionfinish():
    with open(os.environ["KNAPSACK_OUTCOMES"], "w") as f:
        json.dump(outcomes, f)
