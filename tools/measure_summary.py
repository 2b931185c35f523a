#!/usr/bin/env python3
"""What a GPU reached, by family of operators: TFLOP/s of products, GB/s of everything else, and how compute slows beside other work.

    python3 tools/measure_summary.py measurements/h200

Bytes are those of inputs and outputs, each once; causal attention counts the half that is computed. How far a cost model is from the
same rows: `cost_check` (bench/cost_check.cpp).
"""
import csv, os, re, sys

WIDTH = {"f32": 4, "bf16": 2, "f16": 2, "i64": 8, "f8": 1}


def types(row):
    found = []
    for item in row["shapes"].split():
        dtype, shape = re.fullmatch(r"(\w+)\[([\d,]*)\]", item).groups()
        found.append((WIDTH[dtype], [int(n) for n in shape.split(",") if n]))
    return found


def product(numbers):
    result = 1
    for n in numbers:
        result *= n
    return result


def attribute(row, name, fallback):
    found = re.search(rf"\b{name}=(\[[\d,]*\]|[\w.\"]+)", row["attributes"])
    if not found:
        return fallback
    value = found.group(1)
    return [int(n) for n in value[1:-1].split(",")] if value.startswith("[") else int(value)


def flops(row):
    """Of a product; 0 for the rest."""
    (_, x), *rest = types(row)
    w = rest[0][1] if rest else []
    operator = row["operator"]
    if operator == "linear":
        return 2 * product(x) * w[0]
    if operator in ("matmul", "expert_linear"):
        return 2 * product(x) * w[-1]
    if operator == "conv2d":
        stride, pad, groups = attribute(row, "stride", [1, 1]), attribute(row, "pad", [0, 0]), attribute(row, "groups", 1)
        out = [(x[2 + i] + 2 * pad[i] - w[2 + i]) // stride[i] + 1 for i in (0, 1)]
        return 2 * x[0] * out[0] * out[1] * product(w)
    if operator == "attention":
        full = 4 * x[0] * x[1] * rest[0][1][1] * x[2]  # the heads lie side by side in the last dimension
        return full * (0.5 if attribute(row, "causal", 0) else 1) * (1 if row["direction"] == "forward" else 2.5)
    return 0


def traffic(row):
    """Bytes in and out, where the operator is bound by memory."""
    parts = [width * product(shape) for width, shape in types(row)]
    first = parts[0]
    operator, forward = row["operator"], row["direction"] == "forward"
    if operator == "unary":
        to = re.search(r'to="(\w+)"', row["attributes"])
        out = product(types(row)[0][1]) * WIDTH[to.group(1)] if to else first
        return first + out if forward else 3 * first
    if operator in ("binary", "glu"):
        return 3 * first if forward else 5 * first
    if operator in ("accumulate",):
        return 2 * parts[0] + parts[1]
    if operator in ("layer_norm", "rms_norm", "softmax", "bias"):
        return 2 * first if forward else first if operator == "bias" else 3 * first
    if operator == "batch_norm":
        return 3 * first if forward else 5 * first
    if operator == "dropout":
        return 2 * first + first // types(row)[0][0]
    if operator in ("sum_squares", "reduce"):
        return first
    if operator == "cross_entropy":
        return first if forward else 2 * first
    if operator == "adam":
        return 7 * first
    if operator == "momentum":
        return 5 * first
    if operator == "concat":
        return 4 * first
    if operator == "transpose" or operator == "copy_on_device":
        return 2 * first
    if operator in ("copy_to_host", "copy_from_host"):
        return first
    return 0


def at(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "measurements/h200"
    groups = {}
    with open(os.path.join(folder, "operators.csv"), newline="") as file:
        for row in csv.DictReader(file):
            if row["family"] == "host" or row["cache"] == "warm" and row["family"] != "sustained":
                continue
            seconds = float(row["us_median"]) * 1e-6
            work = flops(row) if row["shapes"] else 0
            rate, unit = (work / seconds / 1e12, "TFLOP/s") if work else (traffic(row) / seconds / 1e9, "GB/s")
            if rate:
                name = f"{row['family']} {row['operator']} {row['direction']} {row['dtype']} {row['variant']}"
                groups.setdefault((name, unit), []).append((rate, seconds))
    print(f"{'what':<58} {'rows':>5} {'median':>8} {'p90':>8} {'best':>8}")
    for (name, unit), rates in sorted(groups.items()):
        values = [rate for rate, _ in rates]
        print(f"{name:<58} {len(rates):>5} {at(values, 0.5):>8.1f} {at(values, 0.9):>8.1f} {max(values):>8.1f} {unit}")

    path = os.path.join(folder, "interference.csv")
    if not os.path.exists(path):
        return
    print(f"\n{'time beside / alone':<70}" + "".join(f"{n:>6}" for n in (1, 2, 4, 8, 16, 24, 32)))
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for row in rows:
        key = (row["operator"], row["direction"], row["variant"], row["shapes"].split()[0], row["beside"])
        found.setdefault(key, {})[int(row["beside_units"])] = float(row["us_median"]) / float(row["us_alone"])
    for key, by_units in found.items():
        if key[4] in ("hold", "copy", "reduce"):
            print(f"{' '.join(key):<70}" + "".join(f"{by_units.get(n, float('nan')):>6.2f}" for n in (1, 2, 4, 8, 16, 24, 32)))
        elif key[4].endswith("_host"):
            print(f"{' '.join(key):<70}{by_units[0]:>6.2f}")


if __name__ == "__main__":
    main()
