#!/usr/bin/env python3
"""The installed tree, moved elsewhere, works with CMake and pkg-config, from C, C++ and Python.

So do the .deb packages. All installed files have one version, the library exports only the
header's functions, and the manual page has every option. As a part of another project, Knapsack
changes nothing there.
"""

import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
from program import BINARY, CLEAN, check, knapsack, run_tests, tiny_model  # noqa: E402

BUILD = os.path.dirname(BINARY)
SOURCES = os.getcwd()
QUESTION = "hello world"
HOST = """cmake_minimum_required(VERSION 3.21)
project(Host LANGUAGES C CXX)
enable_testing()
include(FetchContent)
FetchContent_Declare(Knapsack SOURCE_DIR "{sources}")
FetchContent_MakeAvailable(Knapsack)
foreach(name CMAKE_BUILD_TYPE CMAKE_CXX_FLAGS CMAKE_C_FLAGS CMAKE_CXX_STANDARD
        CMAKE_POSITION_INDEPENDENT_CODE CMAKE_CXX_VISIBILITY_PRESET)
  if(NOT "${{${{name}}}}" STREQUAL "")
    message(FATAL_ERROR "${{name}} is ${{${{name}}}}")
  endif()
endforeach()
get_property(options DIRECTORY PROPERTY COMPILE_OPTIONS)
if(options)
  message(FATAL_ERROR "options are ${{options}}")
endif()
add_executable(ask ask.c)
target_link_libraries(ask PRIVATE Knapsack::knapsack)
install(TARGETS ask)
"""


def cached(name):
    with open(os.path.join(BUILD, "CMakeCache.txt")) as f:
        found = re.search(rf"^{name}:\w+=(.*)$", f.read(), re.M)
    return found[1] if found else ""


def run(*args, cwd=None, fails=False, **env):
    r = subprocess.run(
        [str(a) for a in args],
        cwd=cwd,
        capture_output=True,
        text=True,
        errors="replace",
        env={**CLEAN, **env},
        timeout=300,
    )
    if not fails:
        check(
            r.returncode == 0,
            f"{' '.join(map(str, args))}: exit {r.returncode}: "
            f"{r.stdout[-2000:]}{r.stderr[-2000:]}",
        )
    return r


def cmake(source, build, *args):
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    compilers = [f"-D{name}={cached(name)}" for name in ("CMAKE_C_COMPILER", "CMAKE_CXX_COMPILER")]
    return ["cmake", "-S", source, "-B", build, *generator, *compilers, *args]


def ask(program, model, expected, **env):
    r = run(program, model, 64, QUESTION, **env)
    check(r.stdout == expected, f"{program} answers {r.stdout!r}, not {expected!r}")


def test_tree(prefix):
    found = {
        os.path.relpath(os.path.join(d, f), prefix)
        for d, _, files in os.walk(prefix)
        for f in files
    }
    for wanted in (
        "bin/knapsack",
        "include/knapsack.h",
        r".*/libknapsack\.a",
        r".*/libknapsack\.so",
        r".*/libknapsack\.so\.\d+\.\d+",
        r".*/libknapsack\.so\.\d+\.\d+\.\d+",
        ".*/cmake/Knapsack/KnapsackConfig.cmake",
        ".*/pkgconfig/knapsack.pc",
        "share/doc/knapsack/LICENSE",
        "share/man/man1/knapsack.1",
    ):
        check(
            any(re.fullmatch(wanted, path) for path in found), f"{wanted} is not installed: {found}"
        )
    check(len(found) == 14, f"what is installed: {sorted(found)}")
    for compiler, language, standard in (
        ("CMAKE_C_COMPILER", "c", "c99"),
        ("CMAKE_CXX_COMPILER", "c++", "c++11"),
    ):
        run(
            cached(compiler),
            "-x",
            language,
            "-std=" + standard,
            "-Wall",
            "-Wextra",
            "-pedantic",
            "-Werror",
            "-fsyntax-only",
            f"{prefix}/include/knapsack.h",
        )


def test_version(prefix, libraries):
    with open(f"{prefix}/include/knapsack.h") as f:
        header = f.read()
    version = ".".join(
        re.search(rf"define KS_VERSION_{part} (\d+)", header)[1]
        for part in ("MAJOR", "MINOR", "PATCH")
    )
    with open(f"{prefix}/share/man/man1/knapsack.1") as f:
        manual = f.read()
    check(
        run(f"{prefix}/bin/knapsack", "--version").stdout.startswith(f"knapsack {version}\n"),
        "the program's version",
    )
    check(f'"knapsack {version}"' in manual.split("\n")[0], "the manual's version")
    check(os.path.exists(f"{libraries}/libknapsack.so.{version}"), "the shared library's version")
    if shutil.which("pkg-config"):
        said = run(
            "pkg-config", "--modversion", "knapsack", PKG_CONFIG_PATH=f"{libraries}/pkgconfig"
        ).stdout
        check(said == version + "\n", f"pkg-config's version: {said}")
    plain = manual.replace("\\-", "-")
    for command in re.findall(r"^  (\w+) ", knapsack("--help").out.decode(), re.M):
        options = re.findall(r"^  (-.*?)(?:  |$)", knapsack(command, "--help").out.decode(), re.M)
        section = plain.split(f".SH COMMAND {command}\n", 1)[-1].split(".SH", 1)[0]
        check(
            options and all(f".TP\n.B {option}\n" in section for option in options),
            f"the manual has {options} of {command}",
        )
    exported = {
        line.split()[-1]
        for line in run(
            "nm", "-D", "--defined-only", f"{libraries}/libknapsack.so"
        ).stdout.splitlines()
    }
    declared = set(re.findall(r"^[\w* ]+?\b(ks_\w+)\(", header, re.M))
    check(
        exported == declared and "ks_step" in declared,
        f"exported is {exported}, declared {declared}",
    )


def test_cmake(folder, prefix, model, expected):
    """A copy of the example in an otherwise empty folder."""
    stranger = os.path.join(folder, "stranger")
    shutil.copytree("examples/find_package", stranger)
    for shared in ("ON", "OFF"):
        build = os.path.join(stranger, "build-" + shared)
        run(
            *cmake(
                stranger,
                build,
                f"-DCMAKE_PREFIX_PATH={prefix}",
                f"-DBUILD_SHARED_LIBS={shared}",
                "-DCMAKE_C_FLAGS=-Wall -Wextra -Werror",
                "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror",
            )
        )
        run("cmake", "--build", build)
        for program in ("ask", "ask_cpp"):
            ask(f"{build}/{program}", model, expected)
    with open(f"{stranger}/CMakeLists.txt") as f:
        lists = f.read()
    with open(
        f"{stranger}/CMakeLists.txt", "w"
    ) as f:  # a project in C only, which asks for a version that does not exist
        f.write(
            lists[: lists.index("add_executable(ask_cpp")].replace("LANGUAGES C CXX", "LANGUAGES C")
        )
    run(*cmake(stranger, f"{stranger}/build-c", f"-DCMAKE_PREFIX_PATH={prefix}"))
    run("cmake", "--build", f"{stranger}/build-c")
    ask(f"{stranger}/build-c/ask", model, expected)
    with open(f"{stranger}/CMakeLists.txt", "w") as f:
        f.write(lists.replace("Knapsack 0.2 ", "Knapsack 9.0 "))
    r = run(*cmake(stranger, f"{stranger}/build-9", f"-DCMAKE_PREFIX_PATH={prefix}"), fails=True)
    check(r.returncode and "9.0" in r.stderr, f"another version is refused: {r.stderr}")
    return [
        f"{stranger}/{build}/{program}"
        for build, program in (("build-OFF", "ask"), ("build-OFF", "ask_cpp"), ("build-c", "ask"))
    ]


def test_pkg_config(folder, libraries, model, expected, way):
    if not shutil.which("pkg-config"):
        return print("not tested: there is no pkg-config")
    for compiler, source, *options in (
        (cached("CMAKE_C_COMPILER"), "ask.c"),
        (cached("CMAKE_CXX_COMPILER"), "ask.cpp", "-fno-exceptions", "-fno-rtti"),
    ):
        flags = run(
            "pkg-config",
            "--cflags",
            "--libs",
            *way,
            "knapsack",
            PKG_CONFIG_PATH=f"{libraries}/pkgconfig",
        ).stdout.split()
        run(compiler, *options, f"examples/find_package/{source}", "-o", f"{folder}/ask", *flags)
        ask(f"{folder}/ask", model, expected, LD_LIBRARY_PATH="" if way else libraries)


def test_python_conversations(model, library):
    """Two conversations at once: each answer is that of a conversation alone."""
    questions = QUESTION, "hello hello"
    script = "examples/python/two_conversations.py"
    both = run(sys.executable, script, model, 64, *questions, 48, KNAPSACK_LIBRARY=library).stdout
    alone = ["chat", "-m", model, "--memory", "64MiB", "--temp", 0, "-n", 48]
    answers = [knapsack(*alone, stdin=q.encode()).out.decode(errors="replace") for q in questions]
    expected = "".join(f"{q}\n{a}" for q, a in zip(questions, answers))
    check(both == expected, f"python: two conversations: {both!r} is not {expected!r}")
    small = run(
        sys.executable, script, model, 1, *questions, KNAPSACK_LIBRARY=library, fails=True
    )
    check(
        small.returncode == 4 and "2 sessions" in small.stderr,
        f"python: two conversations in too small a budget: {small.stderr!r}",
    )


def test_python_structs(folder, prefix):
    """The structs of the Python example equal the header's."""
    sys.path.insert(0, os.path.join(SOURCES, "examples", "python"))
    sys.dont_write_bytecode = True
    import knapsack as bindings  # noqa: E402

    structs = {
        "ks_model_options": bindings.ModelOptions,
        "ks_stats": bindings.Stats,
        "ks_sampling": bindings.Sampling,
        "ks_bias": bindings.Bias,
        "ks_step_input": bindings.StepInput,
    }
    lines = [f'printf("%zu\\n", sizeof({name}));' for name in structs]
    lines += [
        f'printf("%zu\\n", offsetof({name}, {field[0]}));'
        for name, struct in structs.items()
        for field in struct._fields_
    ]
    with open(f"{folder}/sizes.c", "w") as f:
        f.write(
            "#include <knapsack.h>\n#include <stdio.h>\nint main(void) { "
            + " ".join(lines)
            + " return 0; }\n"
        )
    run(
        cached("CMAKE_C_COMPILER"),
        f"{folder}/sizes.c",
        "-I",
        f"{prefix}/include",
        "-o",
        f"{folder}/sizes",
    )
    sizes = [bindings.ctypes.sizeof(struct) for struct in structs.values()]
    sizes += [
        getattr(struct, field[0]).offset for struct in structs.values() for field in struct._fields_
    ]
    check(
        run(f"{folder}/sizes").stdout.split() == list(map(str, sizes)),
        "the Python example's structs are not the header's",
    )


def test_deb(folder, model, expected):
    if not shutil.which("dpkg-deb"):
        return print("not tested: there is no dpkg-deb")
    run("cpack", "--config", f"{BUILD}/CPackConfig.cmake", "-B", f"{folder}/packages")
    packages = sorted(f for f in os.listdir(f"{folder}/packages") if f.endswith(".deb"))
    names = [p.split("_")[0] for p in packages]
    check(
        len(names) == 3
        and names[:2] == ["knapsack", "libknapsack-dev"]
        and re.fullmatch(r"libknapsack\d+\.\d+", names[2]),
        f"packages: {packages}",
    )
    for package in packages:
        run("dpkg-deb", "-x", f"{folder}/packages/{package}", f"{folder}/deb")
        files = run("dpkg-deb", "-c", f"{folder}/packages/{package}").stdout
        name = package.split("_")[0]
        check(
            all(f"doc/{name}/{file}\n" in files for file in ("copyright", "changelog.gz")),
            f"what Debian wants to be in {name}: {files}",
        )
    for i in (0, 2):
        depends = run("dpkg-deb", "-f", f"{folder}/packages/{packages[i]}", "Depends").stdout
        check(
            "libutf8proc" in depends and "libstdc++" in depends,
            f"what {names[i]} depends on: {depends}",
        )
    depends = run("dpkg-deb", "-f", f"{folder}/packages/{packages[1]}", "Depends").stdout
    check(f"{names[2]} (=" in depends, f"what {names[1]} depends on: {depends}")
    check(os.path.exists(f"{folder}/deb/usr/share/man/man1/knapsack.1.gz"), "the packaged manual")
    run("dpkg-deb", "-e", f"{folder}/packages/{packages[2]}", f"{folder}/control")
    with open(f"{folder}/control/shlibs") as f:
        check(
            f.read().startswith(f"libknapsack {names[2][11:]} {names[2]} (>="),
            "who links the library depends on its package",
        )
    libraries = os.path.dirname(
        next(
            os.path.join(d, "libknapsack.a")
            for d, _, files in os.walk(f"{folder}/deb")
            if "libknapsack.a" in files
        )
    )
    test_pkg_config(folder, libraries, model, expected, [])
    check(
        run(f"{folder}/deb/usr/bin/knapsack", "plan", "-m", model).returncode == 0,
        "the packaged program runs",
    )


def test_inside(folder):
    """As a part of another project: adds no tests, no program, no installed files and no flags.

    Only that project's source is compiled here.
    """
    host, build = os.path.join(folder, "host"), os.path.join(folder, "host", "build")
    os.makedirs(host)
    shutil.copy("examples/find_package/ask.c", host)
    with open(f"{host}/CMakeLists.txt", "w") as f:
        f.write(HOST.format(sources=SOURCES))
    run(*cmake(host, build, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DKS_CUDA=OFF"))
    tests = run("ctest", "--test-dir", build, "-N").stdout
    check("Total Tests: 0" in tests, f"tests leak: {tests}")
    with open(f"{build}/compile_commands.json") as f:
        commands = f.read()
    mine = next(line for line in commands.splitlines() if '"command"' in line and "ask.c" in line)
    options = [w for w in mine.split() if w.startswith("-")]
    check(
        options[0].startswith("-I")
        and options[0].endswith("/include")
        and set(options[1:]) <= {"-o", "-c"},
        f"flags leak: {mine}",
    )
    check("tools/main.cpp" not in commands and "-O3" in commands, "no program, but optimised")
    with open(f"{build}/cmake_install.cmake") as f:
        installed = f.read()
    theirs = os.path.join(build, "_deps", "knapsack-build", "cmake_install.cmake")
    check(
        "ask" in installed and (not os.path.exists(theirs) or "FILES" not in open(theirs).read()),
        "nothing of Knapsack is installed",
    )
    if shutil.which("ninja"):
        run("ninja", "-C", build, "CMakeFiles/ask.dir/ask.c.o")


def test(folder):
    if cached("KS_INSTALL") != "ON" or cached("KS_SHARED") != "ON":
        print("skipped: this build installs nothing, or has no shared library")
        sys.exit(77)
    model = tiny_model(folder)
    expected = knapsack(
        "chat", "-m", model, "--memory", "64MiB", "--temp", "0", "-n", 64, stdin=QUESTION.encode()
    ).out.decode(errors="replace")
    run("cmake", "--install", BUILD, "--prefix", f"{folder}/first")
    prefix = os.path.join(folder, "second")
    os.rename(f"{folder}/first", prefix)
    libraries = os.path.dirname(
        next(
            os.path.join(d, "libknapsack.a")
            for d, _, files in os.walk(prefix)
            if "libknapsack.a" in files
        )
    )
    test_tree(prefix)
    test_version(prefix, libraries)
    archived = test_cmake(folder, prefix, model, expected)
    test_pkg_config(folder, libraries, model, expected, [])
    written = run(
        sys.executable,
        "examples/python/generate.py",
        model,
        64,
        QUESTION,
        KNAPSACK_LIBRARY=f"{libraries}/libknapsack.so",
    )
    same = knapsack(
        "run", "-m", model, "-p", QUESTION, "-n", 32, "--temp", 0, "--memory", "64MiB"
    ).out.decode(errors="replace")
    check(
        written.stdout.rstrip("\n") == same.rstrip("\n")
        and "bytes held of 67108864" in written.stderr,
        f"python: {written.stdout!r} is not {same!r}: {written.stderr!r}",
    )
    test_python_conversations(model, f"{libraries}/libknapsack.so")
    drawn = [
        run(
            sys.executable,
            "examples/python/generate.py",
            model,
            64,
            QUESTION,
            32,
            seed,
            KNAPSACK_LIBRARY=f"{libraries}/libknapsack.so",
        ).stdout
        for seed in (1, 1, 2)
    ]
    check(drawn[0] == drawn[1] != drawn[2], f"python: the seed decides: {drawn}")
    test_python_structs(folder, prefix)
    for name in os.listdir(libraries):
        if ".so" in name:
            os.remove(os.path.join(libraries, name))
    for program in archived:  # programs linked with the archive need no other library
        ask(program, model, expected)
    test_pkg_config(folder, libraries, model, expected, ["--static"])
    test_deb(folder, model, expected)
    test_inside(folder)


run_tests(test)
