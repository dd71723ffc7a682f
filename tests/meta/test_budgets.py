"""Sizes: what is longer than it should be needs a reason, and nothing passes the ceiling."""

MODULE, CEILING = 200, 400
FUNCTION, TRITON_KERNEL = 50, 120
PARAMETERS = 7

LONG_MODULES = {
    "mstar_core/hookspecs.py": "the reference of every hook in one page; mostly docstrings",
    "mstar_core/config/schema.py": "the whole configuration in one page; mostly field texts",
    "mstar_core/client/calls.py": "every call as data, in one page",
    "mstar_core/serving/messages.py": "every message between API and engine process, in one page",
    "mstar_core/engine/core.py": "the loop's turn, whose order of acts is read in one place",
    "mstar_core/engine/capture.py": "a bucket: wanted, captured, chosen; one record of three uses",
    "mstar_core/engine/lifecycle.py": "every call of room, take, plan and commit in one file",
    "mstar_core/resources/kv/resource.py": "one resource: host plan, resident plan and life",
    "mstar_core/resources/base.py": "the contract of a resource, every verb on one page",
    "mstar_core/resources/state/resource.py": "one resource: slots, its snapshots and their life",
    "mstar_core/testing/schedules.py": "what a schedule is, and how each part of it is drawn",
    "mstar_core/sched/scheduler.py": "one choice: who is ready, who fits, what the step says",
    "mstar_core/engine/node.py": "the borders of a forward, host-planned and resident",
    "mstar_core/resources/attention/resource.py": "paged, cross and ragged faces of one resource",
    "mstar_core/engine/staging.py": "the layout of the block and its ring belong together",
    "mstar_core/engine/device.py": "one stream: what it promises, and the CPU's, which may lag",
    "mstar_core/engine/engine.py": "what a program calls, sync and async, in one page",
    "mstar_core/engine/recording.py": "what is kept or refused while recording, in one place",
    "mstar_core/engine/wire.py": "wiring: for real, and before it to know what pools may take",
    "mstar_core/engine/warmup.py": "the phases of the warmup in the order they run",
    "mstar_core/resources/sampler/resource.py": "each sampling setting's column and its plan",
    "mstar_core/testing/ledger.py": "a whole model: its nodes, its walks, its oracle",
    "mstar_core/testing/resources.py": "the checks of the resource contract, read as a list",
    "mstar_core/testing/world.py": "what a resource needs to run without an engine",
    "mstar_core/ops/gated_delta/cases.py": "the cases and their layouts in memory",
    "mstar_core/serving/supervisor/supervisor.py": "the life of a server in one loop",
    "mstar_core/bench/op_subjects.py": "one subject per operation: inputs, bytes and products",
    "plugins/qwen35/mstar_qwen35/config.py": "every published size's fields with their checks",
    "plugins/whisper/mstar_whisper/config.py": "every published size's fields with their checks",
}
"""Module → why it is longer than 200 lines."""
LONG_FUNCTIONS = {
    "plugins/qwen35/mstar_qwen35/model.py:_resources": "data: one declaration per resource",
}
"""``module:function`` → why it is longer than 50 lines."""
MANY_PARAMETERS = {}
"""``module:function`` → why it takes more than 7 parameters."""


def is_kernel(function):
    return any("jit" in ast_text(decorator) for decorator in function.decorator_list)


def ast_text(node):
    node = getattr(node, "func", node)  # a decorator with arguments
    return getattr(node, "attr", getattr(node, "id", ""))


def length(function):
    return function.end_lineno - function.lineno + 1


def parameters(function):
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([a for a in named if a.arg not in ("self", "cls")])


def test_no_module_passes_the_ceiling(shipped):
    assert {s.name: s.lines for s in shipped if s.lines > CEILING} == {}


def test_a_long_module_has_a_reason(shipped):
    long = {s.name: s.lines for s in shipped if s.lines > MODULE and s.name not in LONG_MODULES}
    assert long == {}


def test_a_long_function_has_a_reason(shipped):
    long = {
        f"{source.name}:{function.name}": length(function)
        for source in shipped
        for function in source.functions()
        if length(function) > (TRITON_KERNEL if is_kernel(function) else FUNCTION)
    }
    assert {name: n for name, n in long.items() if name not in LONG_FUNCTIONS} == {}


def test_a_function_of_many_parameters_has_a_reason(shipped):
    many = {
        f"{source.name}:{function.name}": parameters(function)
        for source in shipped
        for function in source.functions()
        if parameters(function) > PARAMETERS and not is_kernel(function)
    }
    assert {name: n for name, n in many.items() if name not in MANY_PARAMETERS} == {}
