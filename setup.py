"""The native part of the package, C11 behind Cython. All else stands in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

MODULES = (
    "tailrace.control.job_clock",
    "tailrace.control.pulse",
    "tailrace.routing.refine",
    "tailrace.routing.sketch",
    "tailrace.runtime.board",
    "tailrace.runtime.exchange",
    "tailrace.runtime.guard",
    "tailrace.runtime.hot",
    "tailrace.runtime.inlet",
    "tailrace.runtime.keypairs",
    "tailrace.runtime.loads",
    "tailrace.runtime.router",
    "tailrace.runtime.shards",
    "tailrace.runtime.sweep",
    "tailrace.transport.decoder",
    "tailrace.transport.jumbo",
    "tailrace.transport.ring.batch",
    "tailrace.transport.ring.doorbell",
    "tailrace.transport.ring.memory",
    "tailrace.transport.ring.reader",
    "tailrace.transport.ring.ring",
    "tailrace.transport.ring.writer",
    "tailrace.transport.texts",
)

EXTENSIONS = [
    Extension(
        name,
        [f"src/{name.replace('.', '/')}.pyx"],
        depends=[str(path) for path in Path("src/tailrace/transport/native").glob("*.h")],
        include_dirs=["src/tailrace/transport"],
        extra_compile_args=["-std=c11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra"],
        libraries=["pthread"],
    )
    for name in MODULES
]
LATER = "TAILRACE_NATIVE_LATER" in os.environ  # `make setup` builds them in place by itself

setup(
    ext_modules=cythonize(
        [] if LATER else EXTENSIONS,
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False},
        build_dir="build/cython",
        quiet=True,
    ),
    options={"build_ext": {"parallel": os.cpu_count()}},
)
