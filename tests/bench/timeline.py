# SPDX-License-Identifier: GPL-2.0
"""Where the time of a registration goes, from the marks that the equipment sets
(tests/modules/times.h) when control passes between core, client and GPU driver."""

from pathlib import Path

_DEBUGFS = Path("/sys/kernel/debug")
_LOGS = {"core": _DEBUGFS / "ib_peer_mem/times", "driver": _DEBUGFS / "mock_nvidia/times"}
REGISTER = ("acquire", "get_pages", "dma_map")
DEREGISTER = ("dma_unmap", "put_pages", "release")
# Under which lock of the core a callback runs (peer_mem.c, OFED 25.10).
GLOBAL_LOCK, MR_LOCK = ("acquire",), ("get_pages", "dma_map")


class Call:
    """A call into the client, and the calls that it made into the driver."""

    def __init__(self, name, begin):
        self.name, self.begin, self.end, self.driver = name, begin, None, []

    @property
    def ticks(self):
        return self.end - self.begin

    @property
    def driver_ticks(self):
        return sum(end - begin for _, begin, end in self.driver)


def _marks():
    for origin, path in _LOGS.items():
        for line in path.read_text().splitlines():
            ticks, thread, name, edge = line.split()
            yield int(ticks), thread, origin, name, edge


class recording:
    """calls has, after the with statement, all calls into the client, in order."""

    def __enter__(self):
        for path in _LOGS.values():
            path.write_text("1")
        return self

    def __exit__(self, *error):
        for path in _LOGS.values():
            path.write_text("0")
        if not error[0]:
            self.calls = _calls(sorted(_marks()))


def _calls(marks):
    calls, client, driver = [], {}, {}
    for ticks, thread, origin, name, edge in marks:
        into_client = origin == "core" or name == "free_callback"
        if into_client and edge == "begin":
            client[thread] = Call(name, ticks)
        elif into_client:
            call = client.pop(thread)
            call.end = ticks
            calls.append(call)
        elif edge == "begin":
            driver[thread] = name, ticks
        else:
            name, begin = driver.pop(thread)
            if thread in client:
                client[thread].driver.append((name, begin, ticks))
    return calls


def _part(calls, names, value):
    return sum(value(call) for call in calls if call.name in names)


def cycle(calls):
    """The figures of one registration and its end, from its six calls."""
    total, driver = (lambda call: call.ticks), (lambda call: call.driver_ticks)
    figures = {
        "client": _part(calls, REGISTER + DEREGISTER, total),
        "driver": _part(calls, REGISTER + DEREGISTER, driver),
        "register": _part(calls, REGISTER, total),
        "deregister": _part(calls, DEREGISTER, total),
        "global_lock": _part(calls, GLOBAL_LOCK, total),
        "mr_lock": _part(calls, MR_LOCK, total),
        "calls_register": _part(calls, REGISTER, lambda call: len(call.driver)),
        "calls_deregister": _part(calls, DEREGISTER, lambda call: len(call.driver)),
    }
    figures["own"] = figures["client"] - figures["driver"]
    for call in calls:
        figures[f"own_{call.name}"] = call.ticks - call.driver_ticks
    return figures


def cycles(calls):
    """Figures of each of the registrations, whose calls follow one another."""
    return [cycle(calls[i:i + 6]) for i in range(0, len(calls), 6)]


def registrations(calls):
    """Own and total time of each of several registrations that were not ended."""
    for i in range(0, len(calls), 3):
        part = calls[i:i + 3]
        total = sum(call.ticks for call in part)
        yield total - sum(call.driver_ticks for call in part), total
