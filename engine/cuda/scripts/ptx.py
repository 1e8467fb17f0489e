#!/usr/bin/env python3
"""Compiles the CUDA kernels to PTX, which the repository holds and the program embeds; no GPU and no toolkit is needed.

  ptx.py            writes ptx/*.ptx and checks that ptxas assembles each for every supported architecture
  ptx.py --check    compares with the committed files instead of writing them
  ptx.py --verbose  prints registers, shared memory and spills of every kernel

Needs the wheels that requirements.txt beside this pins (NVRTC 12.8 writes PTX that drivers from 570 on accept).
"""
import argparse
import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

HOME = pathlib.Path(__file__).resolve().parent.parent
ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"]
# What matrix instructions need is not on the oldest: sources of this name have kernels that others stand in for there.
NEWER, NEWER_FROM = "many_", "sm_80"
# What stands behind this is for these and newer ones.
COVER, UNCOVERED_FROM = b"// sm_90: ", "sm_90"
OPTIONS = ["--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true",
           "--restrict"]
# A kernel that spills more than these bytes to local memory is a mistake; so many are written and read once for each tile.
SPILLS = 32
TOO_MANY = []


def site():
    import nvidia
    return pathlib.Path(list(nvidia.__path__)[0])


def stripped(ptx):
    """Without indentation and comments, a fifth of the text, but for what is a comment on older processors alone."""
    lines = (line.strip() for line in ptx.split(b"\n"))
    return b"\n".join(line for line in lines if line and (line.startswith(COVER) or not line.startswith(b"//"))) + b"\n"


def uncovered(ptx):
    """As the program has the driver translate it for newer processors (src/kernels.rs)."""
    return re.sub(rb"\n\.target sm_\d+\n", b"\n.target sm_90\n", ptx, count=1).replace(COVER, b"")


def oldest_for(source):
    """The oldest architecture that a source is for."""
    return NEWER_FROM if source.name.startswith(NEWER) else ARCHITECTURES[0]


class Compiler:
    def __init__(self):
        lib = site() / "cuda_nvrtc" / "lib"
        ctypes.CDLL(str(lib / "libnvrtc-builtins.so.12.8"), mode=ctypes.RTLD_GLOBAL)
        self.nvrtc = ctypes.CDLL(str(lib / "libnvrtc.so.12"))

    def compile(self, source):
        program = ctypes.c_void_p()
        headers = sorted((HOME / "cu").glob("*.cuh"))
        bodies = (ctypes.c_char_p * len(headers))(*[h.read_bytes() for h in headers])
        names = (ctypes.c_char_p * len(headers))(*[h.name.encode() for h in headers])
        # The name goes into the PTX, so it must not depend on where the project lies.
        self.nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), bodies, names)
        oldest = oldest_for(source).replace("sm_", "compute_")
        words = [f"--gpu-architecture={oldest}", *OPTIONS]
        options = (ctypes.c_char_p * len(words))(*[o.encode() for o in words])
        failed = self.nvrtc.nvrtcCompileProgram(program, len(words), options)
        size = ctypes.c_size_t()
        self.nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        self.nvrtc.nvrtcGetProgramLog(program, log)
        text = log.value.decode().strip()
        if text:
            print(text, file=sys.stderr)
        if failed:
            sys.exit(f"{source.name} does not compile")
        self.nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
        ptx = ctypes.create_string_buffer(size.value)
        self.nvrtc.nvrtcGetPTX(program, ptx)
        return stripped(ptx.raw.rstrip(b"\0"))


def assemble(path, verbose):
    """Registers and spills of each kernel for every architecture; notes those that spill and should not."""
    ptxas = site() / "cuda_nvcc" / "bin" / "ptxas"
    with tempfile.TemporaryDirectory() as scratch:
        for arch in ARCHITECTURES:
            if int(arch[3:]) < int(oldest_for(path)[3:]):
                continue
            text = pathlib.Path(scratch) / path.name
            text.write_bytes(uncovered(path.read_bytes()) if int(arch[3:]) >= int(UNCOVERED_FROM[3:]) else path.read_bytes())
            command = [ptxas, f"-arch={arch}", "-v", text, "-o", pathlib.Path(scratch) / "cubin"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{path.name} does not assemble for {arch}:\n{done.stderr}")
            # ptxas prints for each kernel its name, then its spills, then its registers.
            for name, spilled, registers in re.findall(
                r"Compiling entry function '(\w+)'.*?(\d+) bytes spill stores.*?Used (\d+) registers", done.stderr, re.S
            ):
                if verbose:
                    print(f"{arch:7} {name:28} {registers:>4} registers {spilled:>5} bytes spilled")
                if int(spilled) > SPILLS:
                    TOO_MANY.append(f"{name} in {path.name} spills {spilled} bytes on {arch}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed files")
    parser.add_argument("--verbose", action="store_true", help="print registers and spills")
    options = parser.parse_args()
    compiler = Compiler()
    stale = []
    for source in sorted((HOME / "cu").glob("*.cu")):
        ptx, target = compiler.compile(source), HOME / "ptx" / f"{source.stem}.ptx"
        if not options.check:
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(ptx)
        elif not target.exists() or target.read_bytes() != ptx:
            stale.append(target.name)
            continue
        assemble(target, options.verbose)
    known = {source.stem for source in (HOME / "cu").glob("*.cu")}
    stale += [p.name for p in (HOME / "ptx").glob("*.ptx") if p.stem not in known]
    if TOO_MANY:
        sys.exit("\n".join(TOO_MANY))
    if stale:
        sys.exit(f"not what the sources compile to: {', '.join(stale)}; run ptx.py and commit")
    print("PTX matches the sources" if options.check else "PTX written")


if __name__ == "__main__":
    main()
