"""What a collected Python process does: wrap itself in a profiler if it is a rank, or watch its steps.

Self-contained: it runs in the user's Python, which may lack traceviz and may have other packages of its names.
Only the standard library, and torch or JAX once the program has imported it.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import json
import os
import socket
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WRAPPED = "TRACEVIZ_WRAPPED"
LOCAL_RANKS = (
    *("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"),
    "SLURM_LOCALID",
)


def start(text):
    """Begin with what the collector set for this run."""
    settings = json.loads(text)
    rank = number_in(settings["rank_variables"])
    if settings["wrap"] and rank is not None and not os.environ.get(WRAPPED) and rank in (settings["ranks"] or [rank]):
        wrap(settings, rank)
    if rank is not None:
        leave_environment()
    if settings["tool"] == "jax":
        AfterImport("jax", lambda: load("_traceviz_jax").watch(settings)).install()
    elif settings["tool"] != "rocprofv3":
        AfterImport("torch", lambda: watch(settings)).install()


def number_in(variables):
    """The number that the first of these environment variables has, such as the rank; None where none has one."""
    return next((int(os.environ[name]) for name in variables if os.environ.get(name, "").isdigit()), None)


def settings_of(settings):
    """The settings that order this process's work, as its environment has them now."""
    return {name: os.environ[name] for name in settings["recorded"] if name in os.environ}


def write_about(folder, facts):
    """Write what this process tells the collector of itself, in a file beside the captures."""
    facts = {"pid": os.getpid(), "host": socket.gethostname(), "python": sys.version.split()[0], **facts}
    path = os.path.join(folder, f".about-{socket.gethostname()}-{os.getpid()}.json")
    try:
        with open(path + ".partial", "w", encoding="utf-8") as file:
            json.dump(facts, file)
        os.replace(path + ".partial", path)
    except OSError as error:
        print(f"traceviz: {path} can't be written ({error.strerror}).", file=sys.stderr)


def leave_environment():
    """Give a rank the PYTHONPATH that the user's command would have given it."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [entry for entry in entries if not entry or os.path.abspath(entry) != HERE]  # an empty one is the folder
    if kept:
        os.environ["PYTHONPATH"] = os.pathsep.join(kept)
    else:
        os.environ.pop("PYTHONPATH", None)


def wrap(settings, rank):
    """Become what runs nsys with this very Python as its program; never returns."""
    os.environ[WRAPPED] = "1"
    output = os.path.join(settings["folder"], f"rank{rank}").replace("%", "%%")
    program = [sys.executable, *sys.orig_argv[1:]]
    if settings["tool"] == "rocprofv3":
        facts = {"rank": rank, "state": "captured", "settings": settings_of(settings)}
        write_about(settings["folder"], facts)
        os.execv(settings["wrap"][0], [*settings["wrap"], "--output-file", f"rank{rank}", "--", *program])
    supervise = [sys.executable, "-I", os.path.join(HERE, "_traceviz_supervise.py")]
    counters = []
    if settings["gpu_metrics"]:  # of this rank's GPU, and no other's: one session can sample a GPU
        gpu = own_gpu(os.environ)
        if gpu is None:
            print(f"traceviz: rank {rank} has no counters: nothing tells which GPU is its own.", file=sys.stderr)
        else:
            counters = [f"{settings['gpu_metrics']}={gpu}"]
    os.execv(sys.executable, [*supervise, *settings["wrap"], *counters, f"--output={output}", "--", *program])


def own_gpu(environment):
    """The index, as text, that nsys has for the GPU of a rank; None where the environment can't tell.

    Launchers set a local rank, by which programs choose a GPU; CUDA_VISIBLE_DEVICES says which one that is. One that is
    named by its UUID has no index here.

    >>> own_gpu({"LOCAL_RANK": "1"}), own_gpu({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "4,6"})
    ('1', '6')
    >>> own_gpu({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "5"}), own_gpu({"CUDA_VISIBLE_DEVICES": "GPU-ab"})
    ('5', None)
    """
    texts = [environment[name] for name in LOCAL_RANKS if environment.get(name, "").isdigit()]
    visible = [one.strip() for one in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if one.strip()]
    if len(visible) == 1:
        return visible[0] if visible[0].isdigit() else None
    if not texts:
        return None
    local = int(texts[0])
    if not visible:
        return str(local)
    return visible[local] if local < len(visible) and visible[local].isdigit() else None


def load(name):
    """Import a module that lies beside this one, which need not be on the program's path."""
    spec = importlib.util.spec_from_file_location(name, os.path.join(HERE, f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def watch(settings):
    """Load the part that needs torch."""
    steps = load("_traceviz_steps")
    load("_traceviz_ending")
    load("_traceviz_supervise")
    steps.watch(settings, load("_traceviz_capture"))


class AfterImport(importlib.abc.MetaPathFinder):
    """Call a function once a module has been imported by the program."""

    def __init__(self, name, then):
        self.name, self.then, self.busy = name, then, False

    def install(self):
        """Start watching imports."""
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname, path=None, target=None):
        """Find the module as without us, with a loader that tells when it has run."""
        if fullname != self.name or self.busy:
            return None
        self.busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.busy = False
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module):
                run(module)
                self.done()

            spec.loader.exec_module = exec_module
        return spec

    def done(self):
        """The module is there: watch no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            try:
                self.then()
            except Exception as error:
                print(f"traceviz: this process is not collected ({error!r}).", file=sys.stderr)
