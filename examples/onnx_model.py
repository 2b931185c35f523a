#!/usr/bin/env python3
"""A PyTorch model by ONNX: plan what `torch.onnx.export(model, sample, "model.onnx")` has written.

    onnx_model.py [FILE.onnx CLUSTER [GLOBAL_BATCH]]
"""
import pathlib
import sys

import weft

FILE = pathlib.Path(__file__).resolve().parent.parent / "tests/onnx/bert_base_dynamic.onnx"


def main(file: str = str(FILE), cluster: str = "dgx-a100:1", batch: str = "512") -> None:
    model = weft.Model(file)
    print(f"{pathlib.Path(file).name}: {model.parameters:,} parameters, "
          f"{len(model.to_dict()['operators_by_kind'])} kinds of operators")
    found = weft.plan(model, cluster, global_batch=int(batch), search="enumerate")
    for plan in found.best:
        print(f"{plan.step_time_s * 1e3:8.2f} ms  {plan.samples_per_s:10,.0f} samples/s  {plan.strategy.text}")


main(*sys.argv[1:])
