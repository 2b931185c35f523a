"""How operators slow down beside kernels that hold compute units and memory as communication does."""
import ctypes, glob, os, time

import torch
import torch.nn.functional as F

from measuring.cases import Case, forward, grads, t
from measuring.products import linear
from measuring.records import progress
from measuring.sequences import attend

# Thread blocks that hold their compute unit (shared memory and registers leave no room for a product's tile), as those of a
# collective do, until told to stop. 0: only hold; 1: copy; 2: add two arrays. `pause` throttles: nanoseconds after each pass.
OCCUPANT = r"""
extern "C" __global__ void __launch_bounds__(512) occupy(int mode, const float4* a, const float4* b, float4* c, long long each,
    volatile int* stop, unsigned long long* bytes, unsigned long long* nanoseconds, int pause, unsigned long long limit) {
  extern __shared__ int held[];
  __shared__ int done;
  unsigned long long begin, now, moved = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  const long long base = (long long)blockIdx.x * each, step = blockDim.x * 4;
  long long at = 0;
  if (threadIdx.x == 0) held[0] = 0;
  for (;;) {
    if (threadIdx.x == 0) {
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
      done = *stop || now - begin > limit;
    }
    __syncthreads();
    if (done) break;
    if (mode == 0) {
      __nanosleep(500);
    } else {
      for (int pass = 0; pass < 8; ++pass) {
        float4 x[4], y[4];
        for (int i = 0; i < 4; ++i) x[i] = a[base + at + i * blockDim.x + threadIdx.x];
        if (mode == 2) {
          for (int i = 0; i < 4; ++i) y[i] = b[base + at + i * blockDim.x + threadIdx.x];
          for (int i = 0; i < 4; ++i) { x[i].x += y[i].x; x[i].y += y[i].y; x[i].z += y[i].z; x[i].w += y[i].w; }
        }
        for (int i = 0; i < 4; ++i) c[base + at + i * blockDim.x + threadIdx.x] = x[i];
        at += step;
        if (at + step > each) at = 0;
        moved += step * 16 * (mode == 2 ? 3 : 2);
      }
      if (pause > 0 && threadIdx.x == 0) {
        unsigned long long from;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(from));
        do { asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); } while (now - from < pause);
      }
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    bytes[blockIdx.x] = moved;
    nanoseconds[blockIdx.x] = now - begin;
  }
}
"""


class Occupant:
    """The kernel above, compiled by NVRTC and started by the driver; both by ctypes, so that PyTorch alone is needed."""
    SHARED = 96 << 10
    BLOCKS = 64

    def __init__(self, device):
        self.device = device
        root = os.path.dirname(os.path.dirname(torch.__file__))
        found = sorted(glob.glob(f"{root}/nvidia/**/libnvrtc.so*", recursive=True) + glob.glob("/usr/local/cuda*/lib64/libnvrtc.so*"))
        found = [f for f in found if "builtins" not in f and "alt" not in f] or ["libnvrtc.so"]
        nvrtc, self.driver = ctypes.CDLL(found[0]), ctypes.CDLL("libcuda.so.1")
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        major, minor = torch.cuda.get_device_capability()
        options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{major}{minor}".encode())
        self.check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), OCCUPANT.encode(), b"occupy.cu", 0, None, None))
        if nvrtc.nvrtcCompileProgram(program, 1, options) != 0:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.value.decode())
        self.check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        binary = ctypes.create_string_buffer(size.value)
        self.check(nvrtc.nvrtcGetCUBIN(program, binary))
        torch.zeros(1, device=device.options.device)  # makes the context current
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), binary))
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(self.function), module, b"occupy"))
        self.check(self.driver.cuFuncSetAttribute(self.function, 8, self.SHARED))  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        on = {"device": device.options.device}
        self.each = 4 << 20  # float4 of one block: 64 MiB
        self.arrays = [torch.ones(4 * self.each * 32, **on) for _ in range(3)]
        self.stop = torch.zeros(1, dtype=torch.int32, **on)
        self.bytes, self.nanoseconds = (torch.zeros(self.BLOCKS, dtype=torch.int64, **on) for _ in range(2))
        self.stream = torch.cuda.Stream(priority=-1)

    @staticmethod
    def check(code):
        if code != 0:
            raise RuntimeError(f"CUDA or NVRTC error {code}")

    def launch(self, mode, blocks, pause, limit_us):
        values = [ctypes.c_int(mode), *(ctypes.c_void_p(x.data_ptr()) for x in self.arrays), ctypes.c_longlong(self.each),
                  ctypes.c_void_p(self.stop.data_ptr()), ctypes.c_void_p(self.bytes.data_ptr()),
                  ctypes.c_void_p(self.nanoseconds.data_ptr()), ctypes.c_int(pause), ctypes.c_ulonglong(int(limit_us * 1000))]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values))
        self.check(self.driver.cuLaunchKernel(self.function, blocks, 1, 1, 512, 1, 1, self.SHARED,
                                              ctypes.c_void_p(self.stream.cuda_stream), pointers, None))

    def rate(self, blocks):
        """GB/s of the last run."""
        seconds = self.nanoseconds[:blocks].double() / 1e9
        return float((self.bytes[:blocks].double() / seconds.clamp_min(1e-9)).sum() / 1e9)

    def alone(self, mode, blocks, pause):
        self.stop.zero_()
        torch.cuda.synchronize()
        self.launch(mode, blocks, pause, 3000)
        torch.cuda.synchronize()
        return self.rate(blocks)

    def beside(self, mode, blocks, pause):
        def around(sampler, expected_us):
            self.stop.zero_()
            torch.cuda.synchronize()
            self.launch(mode, blocks, pause, 6 * expected_us + 200_000)
            torch.cuda._sleep(100_000)
            self.device.issued = lambda: self.stop.fill_(1)
            try:
                return sampler()
            finally:
                self.device.issued = None
                torch.cuda.synchronize()
        return around


def host_traffic(device, to_host):
    """Pure memory traffic: copies by the copy engines, which hold no compute unit."""
    stream = torch.cuda.Stream()
    host, there = torch.ones(1 << 26, pin_memory=True), torch.ones(1 << 26, device=device.options.device)
    def around(sampler, expected_us):
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(int(expected_us * 2 / 5000) + 2):  # 256 MB each, about 5 ms
                (host if to_host else there).copy_(there if to_host else host, non_blocking=True)
        return sampler()
    return around


def victims():
    def gemm(rows, k, n, direction="forward"):
        return linear("interference", "bf16", rows, k, n, direction)
    cases = [gemm(4096, 4096, 4096), gemm(8192, 4096, 14336), gemm(8192, 1024, 4096), gemm(8192, 1024, 4096, "grad_weight"),
             gemm(2048, 768, 3072), gemm(2048, 768, 3072, "grad_input"), gemm(16384, 2048, 2048, "grad_weight")]
    for b, s, heads, d, variant in ((4, 2048, 16, 128, "flash"), (8, 1024, 12, 64, "flash"), (4, 2048, 16, 128, "cudnn")):
        shapes = " ".join([t("bf16", b, s, heads * d)] * 3)
        attributes = {"causal": 1, "heads": heads, "kv_heads": heads}
        run = attend(heads, heads, 1, variant)
        cases.append(Case("interference", "attention", attributes, shapes, forward(run), variant=variant))
        cases.append(Case("interference", "attention", attributes, shapes, grads(run), direction="grad", variant=variant))
    x, w = t("bf16", 8192, 4096), t("bf16", 4096)
    layer = lambda a, g, b: F.layer_norm(a, g.shape, g, b)
    cases.append(Case("interference", "layer_norm", {}, f"{x} {w} {w}", forward(layer)))
    cases.append(Case("interference", "layer_norm", {}, f"{x} {w} {w}", grads(layer), direction="grad"))
    cases.append(Case("interference", "rms_norm", {}, f"{x} {w}", forward(lambda a, g: F.rms_norm(a, g.shape, g))))
    cases.append(Case("interference", "unary", {"fn": "gelu"}, t("bf16", 8192, 8192), forward(F.gelu)))
    cases.append(Case("interference", "binary", {"fn": "add"}, f"{x} {x}", forward(torch.add)))
    return cases


def interference(device, table, until):
    if not device.cuda:
        return
    occupant = Occupant(device)
    units = (2, 16) if device.options.quick else (1, 2, 4, 8, 12, 16, 20, 24, 32)
    points = [(name, mode, n, 0) for n in units for name, mode in (("copy", 1), ("reduce", 2), ("hold", 0))]
    points += [(f"copy_paused_{pause}ns", 1, n, pause) for n in units[len(units) // 2::3] for pause in (2000, 8000)]
    alone = {(mode, n, pause): occupant.alone(mode, n, pause) for _, mode, n, pause in points if mode}
    cases = victims()
    for index, case in enumerate(cases[:: 5] if device.options.quick else cases):
        progress(f"interference {index + 1}/{len(cases)}: {case.operator} {case.direction} {case.variant}")
        if time.monotonic() > until:
            return progress("interference: out of time")
        try:
            call = case.make(*[device.tensor(s) for s in case.shapes])
            base = device.measure(call, False)
            alone_us = round(base[len(base) // 2], 3)
            table.add(case.key("warm"), base, ["none", 0, "", "", alone_us])
            for name, mode, n, pause in points:
                times = device.measure(call, False, occupant.beside(mode, n, pause))
                free, shared = (round(alone[mode, n, pause], 2), round(occupant.rate(n), 2)) if mode else ("", "")
                table.add(case.key("warm"), times, [name, n, free, shared, alone_us])
            for name in ("to_host", "from_host"):
                times = device.measure(call, False, host_traffic(device, name == "to_host"))
                table.add(case.key("warm"), times, ["copy_" + name, 0, "", "", alone_us])
            again = device.measure(call, False)
            table.add(case.key("warm"), again, ["none_again", 0, "", "", alone_us])
        except Exception as problem:
            table.fail(case.key("warm"), problem)
            if "CUDA error" in str(problem):
                raise
