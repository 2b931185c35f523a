"""What is written: tables, a row per point as soon as it is measured, and the provenance of a run."""
import csv, json, os, platform, subprocess, sys, time
from datetime import datetime, timezone

import torch

COLUMNS = ["family", "operator", "attributes", "shapes", "dtype", "direction", "variant", "cache", "us_median", "us_p10", "us_p90",
           "repeats", "sm_mhz", "memory_mhz", "watts", "device", "torch", "cuda", "driver"]
BESIDE = ["beside", "beside_units", "beside_alone_gbs", "beside_gbs", "us_alone"]
BEGIN = time.monotonic()


class Table:
    def __init__(self, path, device, extra=()):
        self.device, self.failures, self.rows = device, [], 0
        self.columns = COLUMNS[:8] + list(extra) + COLUMNS[8:]
        self.keys = set()
        if os.path.exists(path):
            with open(path, newline="") as old:
                for row in csv.DictReader(old):
                    self.keys.add(tuple(row[c] for c in COLUMNS[:8] + list(extra)[:2]))
        self.file = open(path, "a", newline="")
        self.writer = csv.writer(self.file, lineterminator="\n")
        if self.file.tell() == 0:
            self.writer.writerow(self.columns)
        self.tail = [device.name, torch.__version__, torch.version.cuda or "", device.driver]

    def has(self, key):
        return key in self.keys

    def add(self, key, times, extra=()):
        if (*key, *map(str, extra[:2])) in self.keys:
            return
        at = lambda share: f"{times[min(len(times) - 1, int(share * len(times)))]:.3f}"
        self.writer.writerow([*key, *extra, at(0.5), at(0.1), at(0.9), len(times), *self.device.readings, *self.tail])
        self.file.flush()
        self.keys.add((*key, *map(str, extra[:2])))
        self.rows += 1

    def fail(self, key, problem):
        words = " ".join(str(problem).split())[:200]
        self.failures.append({"case": [str(k) for k in key], "problem": words})
        progress(f"failed: {' '.join(str(k) for k in key)}: {words}")


def progress(words):
    print(f"[{time.monotonic() - BEGIN:6.1f} s] {words}", file=sys.stderr, flush=True)


def provenance(device, options, tables, path):
    smi = ""
    if device.cuda:
        try:
            fields = "name,driver_version,vbios_version,power.limit,clocks.max.sm,clocks.max.mem,clocks.sm,temperature.gpu,memory.total,ecc.mode.current"
            smi = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], capture_output=True, text=True, timeout=20).stdout
        except (OSError, subprocess.SubprocessError):
            pass
    record = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "command": " ".join(sys.argv), "seed": options.seed,
        "device": device.name, "compute_units": device.units, "l2_bytes": device.l2, "torch": torch.__version__,
        "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(), "driver": device.driver, "python": platform.python_version(),
        "system": platform.platform(), "host_cpus": os.cpu_count(), "nvidia_smi": smi.splitlines(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark, "seconds": round(time.monotonic() - BEGIN, 1),
        "rows": {name: table.rows for name, table in tables.items()},
        "failures": [failure for table in tables.values() for failure in table.failures],
    }
    runs = []
    if os.path.exists(path):
        with open(path) as old:
            runs = json.load(old)
    with open(path, "w") as out:
        json.dump(runs + [record], out, indent=1)
