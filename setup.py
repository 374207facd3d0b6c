"""The native part of the package, C11 behind Cython. All else stands in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [
            Extension(
                "tailrace.transport.ring",
                ["src/tailrace/transport/ring.pyx"],
                depends=[str(path) for path in Path("src/tailrace/transport/native").glob("*.h")],
                include_dirs=["src/tailrace/transport"],
                extra_compile_args=[
                    "-std=c11",
                    "-O3",
                    "-fvisibility=hidden",
                    "-Wall",
                    "-Wextra",
                ],
                libraries=["pthread"],
            ),
            *(
                Extension(
                    name,
                    [f"src/{name.replace('.', '/')}.pyx"],
                    extra_compile_args=["-std=c11", "-O3", "-Wall"],
                )
                for name in ("tailrace.transport.flat", "tailrace.runtime.hot")
            ),
        ],
        compiler_directives={"language_level": 3, "boundscheck": False, "wraparound": False},
        build_dir="build/cython",
    )
)
