"""Exported PyTorch scripts train the same function as `weft run`: losses of three steps agree to 1e-4, plain data, tensor
and pipeline parallel on two to four processes. Says so and ends well where python3-torch or weft-rank is absent."""
import ast
import os
import re
import subprocess
import sys
import tempfile

WEFT = os.environ["WEFT_BIN"]
GPT = "gpt2-124m:layers=2,hidden=32,heads=4,vocab=128,context=32,dropout=0"
LLAMA = "llama3-8b:layers=2,hidden=32,heads=4,kv_heads=2,ffn=48,vocab=128,context=32"
CASES = [(GPT, "dp=2", 2), (GPT, "pp=2", 2), (LLAMA, "tp=2,sp=0,pp=2,recompute=full", 4),
         ("lenet", "dp=2,mbs=1", 2), ("resnet18:image=64,classes=10", "dp=2,mbs=8", 2)]


def python_with_torch():
    for python in ("/usr/bin/python3", sys.executable):
        if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode == 0:
            return python
    return None


def losses(text):
    return [float(loss) for loss in re.findall(r"step \d+ +loss ([0-9.]+)", text)]


def launched(python, script, count, folder):
    """torchrun; Debian's torch 1.13 under Python 3.11 needs its output redirected."""
    words = [python, "-m", "torch.distributed.run", "-r", "1", "-t", "1", "--nproc_per_node", str(count), "--master_port",
             str(20000 + os.getpid() % 20000), script, "--steps", "3"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))
    return losses(done.stdout), done.stdout + done.stderr


def check_sharded(python, folder):
    """The script of FSDP2 cannot run on Debian's torch: it is Python, and says which torch it needs."""
    failed = False
    for strategy in ("dp=4,zero=3", "tp=2,sp=0,fsdp=2,replicate=2,recompute=full", "dp=8,zero=2"):
        script = os.path.join(folder, "sharded.py")
        subprocess.run([WEFT, "export", "--model", LLAMA, "--strategy", strategy, "--cluster", "cpu-node:1", "--devices",
                        "4" if strategy == "dp=4,zero=3" else "8", "--global-batch", "8", "--dtype", "fp32", "--to", "pytorch",
                        "--out", script], check=True, capture_output=True)
        with open(script, encoding="utf-8") as file:
            ast.parse(file.read())
        done = subprocess.run([python, script], capture_output=True, text=True)
        version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True).stdout
        if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) >= (2, 4):
            print(f"not run: {strategy} on torch {version.strip()}; start it by torchrun")
            continue
        fine = done.returncode == 1 and "needs torch 2.4 or later" in done.stderr
        print(f"{'says what it needs' if fine else 'DIFFERENT'}: {strategy} on torch {version.strip()}")
        failed = failed or not fine
    return failed


def main():
    python = python_with_torch()
    if python is None or not os.access(os.path.join(os.path.dirname(WEFT), "weft-rank"), os.X_OK):
        print("absent: python3-torch or weft-rank; exported scripts were not run")
        return 0
    failed = False
    for model, strategy, count in CASES:
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "train.py")
            plan = ["--model", model, "--strategy", strategy, "--global-batch", "16" if "resnet" in model else "4"]
            subprocess.run([WEFT, "export", *plan, "--cluster", "cpu-node:1", "--devices", str(count), "--dtype", "fp32", "--to", "pytorch",
                            "--out", script], check=True, capture_output=True)
            ran = subprocess.run([WEFT, "run", *plan, "--ranks", str(count), "--steps", "3"], capture_output=True, text=True)
            expected = losses(ran.stdout)
            found, printed = launched(python, script, count, folder)
            agree = len(expected) == len(found) == 3 and all(abs(a - b) <= 1e-4 * abs(a) for a, b in zip(expected, found))
            print(f"{'equal' if agree else 'DIFFERENT'}: {model} {strategy}: weft run {expected}, script {found}")
            if not agree:
                failed = True
                print(printed[-2000:], ran.stderr[-1000:])
    with tempfile.TemporaryDirectory() as folder:
        failed = check_sharded(python, folder) or failed
    return failed


sys.exit(main())
