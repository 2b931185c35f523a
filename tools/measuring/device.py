"""The device: its clocks, tensors on it, and how long calls take there."""
import ctypes, platform, re, time

import torch

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "i64": torch.int64,
          "f8": getattr(torch, "float8_e4m3fn", None)}


class Meter:
    """Clocks and power by NVML, where the library is there."""

    def __init__(self, index):
        self.handle = None
        try:
            self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
            handle = ctypes.c_void_p()
            if self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0:
                self.handle = handle
        except OSError:
            pass

    def read(self):
        if self.handle is None:
            return "", "", ""
        values = []
        for clock in (1, 2):  # SM, memory
            mhz = ctypes.c_uint()
            values.append(mhz.value if self.nvml.nvmlDeviceGetClockInfo(self.handle, clock, ctypes.byref(mhz)) == 0 else "")
        power = ctypes.c_uint()
        fine = self.nvml.nvmlDeviceGetPowerUsage(self.handle, ctypes.byref(power)) == 0
        return values[0], values[1], round(power.value / 1000) if fine else ""

    def driver(self):
        if self.handle is None:
            return ""
        text = ctypes.create_string_buffer(96)
        self.nvml.nvmlSystemGetDriverVersion(text, 96)
        return text.value.decode()


class Device:
    def __init__(self, options):
        self.options = options
        self.cuda = options.device.startswith("cuda")
        if self.cuda:
            torch.cuda.set_device(int(options.device.partition(":")[2] or 0))
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            self.name, self.units = properties.name, properties.multi_processor_count
            self.l2 = getattr(properties, "L2_cache_size", 64 << 20)
            # Four times the L2 cache: reading it leaves nothing else there.
            self.flush = torch.ones(self.l2, dtype=torch.float32, device=options.device)
            self.meter = Meter(torch.cuda.current_device())
        else:
            self.name, self.units, self.l2, self.meter = platform.processor() or "cpu", 1, 0, None
        self.driver = self.meter.driver() if self.meter else ""
        self.events = []
        self.readings = ("", "", "")
        self.issued = None  # called when all samples are issued, before they are waited for

    def tensor(self, text, high=None):
        dtype, shape = re.fullmatch(r"(\w+)\[([\d,]*)\]", text).groups()
        shape = [int(n) for n in shape.split(",") if n]
        if dtype == "i64":
            return torch.randint(0, high, shape, device=self.options.device)
        if dtype == "f8":
            return torch.randn(shape, device=self.options.device).to(DTYPES["f8"])
        return torch.randn(shape, device=self.options.device, dtype=DTYPES[dtype])

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def sample(self, call, count, cold, cover_us):
        """Microseconds of `count` calls, each on its own. The device is kept busy for `cover_us` while the host issues the call."""
        if not self.cuda:
            times = []
            for _ in range(count):
                begin = time.perf_counter()
                call()
                times.append((time.perf_counter() - begin) * 1e6)
            return times
        while len(self.events) < count:
            self.events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        for start, end in self.events[:count]:
            if cold:
                self.flush.sum()
            if cover_us > 0:
                torch.cuda._sleep(int(cover_us * 1900))
            start.record()
            call()
            end.record()
        if self.issued:
            self.issued()
        self.readings = self.meter.read()  # while the last calls run
        torch.cuda.synchronize()
        return [1000 * start.elapsed_time(end) for start, end in self.events[:count]]

    def measure(self, call, cold, around=None):
        """Sorted microseconds. `around(sampler)` may run the sampling inside something else (interference)."""
        options = self.options
        call()  # first use: libraries load and choose
        self.sync()
        host = []
        for _ in range(3):
            begin = time.perf_counter()
            call()
            host.append((time.perf_counter() - begin) * 1e6)
            self.sync()
        cover = 1.5 * sorted(host)[1] + (0 if cold else 40)  # reading the flush buffer covers some of it
        estimate = sorted(self.sample(call, 3, cold, cover))[1]
        count = int(min(max(options.point_ms * 1000 / max(estimate, 1), options.fewest), options.most))
        sampler = lambda: self.sample(call, count, cold, cover)
        return sorted(around(sampler, count * (estimate + cover + 120)) if around else sampler())
