#!/usr/bin/python3
"""Exports the ONNX graphs under tests/onnx, without their weights.

    /usr/bin/python3 tools/export_onnx.py [NAME...]

Needs Debian 12's python3-torch, python3-torchvision and python3-onnx. Every model is built with
random weights and exported in training mode; the weights are then dropped, so that a file holds the
graph, the names, shapes and types of the weights, and the constants that shapes are computed from.
Beside the files it writes expected.json, whose counts come from running the model in torch (see
TorchCounter) and are checked against a walk of the exported graph (see count_onnx).
"""

import argparse
import collections
import io
import json
import math
import pathlib
import sys
import warnings

import onnx
import torch
import torchvision
from onnx import TensorProto, numpy_helper, shape_inference
from torch import nn
from torch.nn import functional as F

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "onnx"
KEEP_BYTES = 64 * 1024  # integer and bool tensors below this size stay in the file
KEEP_FLOAT_BYTES = 64  # float constants up to this size stay: epsilons, exponents, ratios
FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}


# --- BERT: modules and names as in Hugging Face's BertForPreTraining ------------------------------


class BertConfig:
    vocab, hidden, layers, heads, ffn, positions, types = 30522, 768, 12, 12, 3072, 512, 2
    dropout, eps = 0.1, 1e-12


class BertEmbeddings(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.word_embeddings = nn.Embedding(c.vocab, c.hidden, padding_idx=0)
        self.position_embeddings = nn.Embedding(c.positions, c.hidden)
        self.token_type_embeddings = nn.Embedding(c.types, c.hidden)
        self.LayerNorm = nn.LayerNorm(c.hidden, eps=c.eps)
        self.dropout = nn.Dropout(c.dropout)
        self.register_buffer("position_ids", torch.arange(c.positions).expand((1, -1)))

    def forward(self, input_ids, token_type_ids):
        position_ids = self.position_ids[:, : input_ids.size(1)]
        x = self.word_embeddings(input_ids) + self.token_type_embeddings(token_type_ids)
        x = x + self.position_embeddings(position_ids)
        return self.dropout(self.LayerNorm(x))


class BertSelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.size = c.heads, c.hidden // c.heads
        self.query = nn.Linear(c.hidden, c.hidden)
        self.key = nn.Linear(c.hidden, c.hidden)
        self.value = nn.Linear(c.hidden, c.hidden)
        self.dropout = nn.Dropout(c.dropout)

    def split(self, x):
        return x.view(x.size()[:-1] + (self.heads, self.size)).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size) + mask
        probs = self.dropout(F.softmax(scores, dim=-1))
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        return context.view(context.size()[:-2] + (self.heads * self.size,))


class BertOutput(nn.Module):
    """A projection, dropout, and a LayerNorm of the sum with the residual."""

    def __init__(self, c, inputs):
        super().__init__()
        self.dense = nn.Linear(inputs, c.hidden)
        self.LayerNorm = nn.LayerNorm(c.hidden, eps=c.eps)
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x, residual):
        return self.LayerNorm(self.dropout(self.dense(x)) + residual)


class BertAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.self = BertSelfAttention(c)
        self.output = BertOutput(c, c.hidden)

    def forward(self, x, mask):
        return self.output(self.self(x, mask), x)


class BertIntermediate(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dense = nn.Linear(c.hidden, c.ffn)
        self.intermediate_act_fn = nn.GELU()

    def forward(self, x):
        return self.intermediate_act_fn(self.dense(x))


class BertLayer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.attention = BertAttention(c)
        self.intermediate = BertIntermediate(c)
        self.output = BertOutput(c, c.ffn)

    def forward(self, x, mask):
        x = self.attention(x, mask)
        return self.output(self.intermediate(x), x)


class BertEncoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.layer = nn.ModuleList([BertLayer(c) for _ in range(c.layers)])

    def forward(self, x, mask):
        for layer in self.layer:
            x = layer(x, mask)
        return x


class BertPooler(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dense = nn.Linear(c.hidden, c.hidden)
        self.activation = nn.Tanh()

    def forward(self, x):
        return self.activation(self.dense(x[:, 0]))


class BertModel(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embeddings = BertEmbeddings(c)
        self.encoder = BertEncoder(c)
        self.pooler = BertPooler(c)

    def forward(self, input_ids, attention_mask, token_type_ids):
        mask = attention_mask[:, None, None, :].to(torch.float32)
        mask = (1.0 - mask) * torch.finfo(torch.float32).min
        x = self.encoder(self.embeddings(input_ids, token_type_ids), mask)
        return x, self.pooler(x)


class BertPredictionHeadTransform(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.dense = nn.Linear(c.hidden, c.hidden)
        self.transform_act_fn = nn.GELU()
        self.LayerNorm = nn.LayerNorm(c.hidden, eps=c.eps)

    def forward(self, x):
        return self.LayerNorm(self.transform_act_fn(self.dense(x)))


class BertLMPredictionHead(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.transform = BertPredictionHeadTransform(c)
        self.decoder = nn.Linear(c.hidden, c.vocab, bias=False)
        self.bias = nn.Parameter(torch.zeros(c.vocab))
        self.decoder.bias = self.bias

    def forward(self, x):
        return self.decoder(self.transform(x))


class BertPreTrainingHeads(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.predictions = BertLMPredictionHead(c)
        self.seq_relationship = nn.Linear(c.hidden, 2)

    def forward(self, x, pooled):
        return self.predictions(x), self.seq_relationship(pooled)


class BertForPreTraining(nn.Module):
    def __init__(self, c=BertConfig):
        super().__init__()
        self.bert = BertModel(c)
        self.cls = BertPreTrainingHeads(c)
        self.cls.predictions.decoder.weight = self.bert.embeddings.word_embeddings.weight

    def forward(self, input_ids, attention_mask, token_type_ids):
        return self.cls(*self.bert(input_ids, attention_mask, token_type_ids))


# --- GPT-2: modules and names as in Hugging Face's GPT2LMHeadModel --------------------------------


class Gpt2Config:
    vocab, positions, hidden, layers, heads, dropout, eps = 50257, 1024, 768, 12, 12, 0.1, 1e-5


class Conv1D(nn.Module):
    """A linear layer whose weight is stored as inputs by outputs."""

    def __init__(self, outputs, inputs):
        super().__init__()
        self.outputs = outputs
        self.weight = nn.Parameter(torch.randn(inputs, outputs) * 0.02)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        shape = x.size()[:-1] + (self.outputs,)
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(shape)


class NewGELU(nn.Module):
    def forward(self, x):
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class GPT2Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        mask = torch.tril(torch.ones((c.positions, c.positions), dtype=torch.bool))
        self.register_buffer("bias", mask.view(1, 1, c.positions, c.positions))
        self.hidden, self.heads, self.size = c.hidden, c.heads, c.hidden // c.heads
        self.c_attn = Conv1D(3 * c.hidden, c.hidden)
        self.c_proj = Conv1D(c.hidden, c.hidden)
        self.attn_dropout = nn.Dropout(c.dropout)
        self.resid_dropout = nn.Dropout(c.dropout)

    def split(self, x):
        return x.view(x.size()[:-1] + (self.heads, self.size)).permute(0, 2, 1, 3)

    def forward(self, x):
        q, k, v = self.c_attn(x).split(self.hidden, dim=2)
        q, k, v = self.split(q), self.split(k), self.split(v)
        weights = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.size)
        queries, keys = q.size(-2), k.size(-2)
        mask = self.bias[:, :, keys - queries : keys, :keys]
        weights = torch.where(mask, weights, torch.finfo(weights.dtype).min)
        weights = self.attn_dropout(F.softmax(weights, dim=-1))
        x = torch.matmul(weights, v).permute(0, 2, 1, 3).contiguous()
        x = x.view(x.size()[:-2] + (self.heads * self.size,))
        return self.resid_dropout(self.c_proj(x))


class GPT2MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c_fc = Conv1D(4 * c.hidden, c.hidden)
        self.c_proj = Conv1D(c.hidden, 4 * c.hidden)
        self.act = NewGELU()
        self.dropout = nn.Dropout(c.dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(self.act(self.c_fc(x))))


class GPT2Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln_1 = nn.LayerNorm(c.hidden, eps=c.eps)
        self.attn = GPT2Attention(c)
        self.ln_2 = nn.LayerNorm(c.hidden, eps=c.eps)
        self.mlp = GPT2MLP(c)

    def forward(self, x):
        x = self.attn(self.ln_1(x)) + x
        return x + self.mlp(self.ln_2(x))


class GPT2Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.wte = nn.Embedding(c.vocab, c.hidden)
        self.wpe = nn.Embedding(c.positions, c.hidden)
        self.drop = nn.Dropout(c.dropout)
        self.h = nn.ModuleList([GPT2Block(c) for _ in range(c.layers)])
        self.ln_f = nn.LayerNorm(c.hidden, eps=c.eps)

    def forward(self, input_ids):
        position_ids = torch.arange(input_ids.size(-1), dtype=torch.long).unsqueeze(0)
        x = self.drop(self.wte(input_ids) + self.wpe(position_ids))
        for block in self.h:
            x = block(x)
        return self.ln_f(x)


class GPT2LMHeadModel(nn.Module):
    def __init__(self, c=Gpt2Config):
        super().__init__()
        self.transformer = GPT2Model(c)
        self.lm_head = nn.Linear(c.hidden, c.vocab, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, input_ids):
        return self.lm_head(self.transformer(input_ids))


# --- LSTMs. torch cannot export nn.LSTM's own dropout in training mode, so it is 0 there. ---------


class LstmLanguageModel(nn.Module):
    def __init__(self, vocab=10000, hidden=1024, layers=2):
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.encoder = nn.Embedding(vocab, hidden)
        self.rnn = nn.LSTM(hidden, hidden, layers)
        self.decoder = nn.Linear(hidden, vocab)

    def forward(self, tokens):  # steps by batch
        output, _ = self.rnn(self.drop(self.encoder(tokens)))
        return self.decoder(self.drop(output))


class LstmClassifier(nn.Module):
    def __init__(self, vocab=25000, embedding=256, hidden=512, classes=2):
        super().__init__()
        self.embedding = nn.Embedding(vocab, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.5)
        self.classifier = nn.Linear(2 * hidden, classes)

    def forward(self, tokens):  # batch by steps
        _, (h, _) = self.lstm(self.embedding(tokens))
        return self.classifier(self.dropout(torch.cat((h[0], h[1]), dim=1)))


# --- The list of files ----------------------------------------------------------------------------


def image(size, batch=2):
    return {"input": torch.randn(batch, 3, size, size)}


def bert_inputs(sequence, batch=2):
    ids = torch.randint(1, BertConfig.vocab, (batch, sequence))
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": torch.zeros_like(ids),
    }


def tokens(vocab, *shape):
    return {"input_ids": torch.randint(0, vocab, shape)}


def torchvision_model(name, **options):
    def build():
        return getattr(torchvision.models, name)(weights=None, **options)

    return build


VISION = "torchvision 0.14.1 "
Case = collections.namedtuple("Case", "source build inputs outputs sequence opset dynamic")
Case.__new__.__defaults__ = (None, 14, {})
CASES = {
    "resnet50": Case(VISION + "resnet50", torchvision_model("resnet50"), image(224), ["logits"]),
    "vgg19": Case(
        VISION + "vgg19", torchvision_model("vgg19", init_weights=False), image(224), ["logits"]
    ),
    "inception_v3": Case(
        VISION + "inception_v3",
        torchvision_model("inception_v3", init_weights=False),
        image(299),
        ["logits", "aux_logits"],
    ),
    "vit_b_16": Case(
        VISION + "vit_b_16", torchvision_model("vit_b_16"), image(224), ["logits"], 197
    ),
    "vit_b_16_opset17": Case(
        VISION + "vit_b_16", torchvision_model("vit_b_16"), image(224), ["logits"], 197, 17
    ),
    "bert_base": Case(
        "BertForPreTraining base, plain torch.nn",
        BertForPreTraining,
        bert_inputs(512),
        ["prediction_logits", "seq_relationship_logits"],
        512,
    ),
    "bert_base_dynamic": Case(
        "BertForPreTraining base, plain torch.nn",
        BertForPreTraining,
        bert_inputs(128),
        ["prediction_logits", "seq_relationship_logits"],
        128,
        14,
        {name: {0: "batch"} for name in ("input_ids", "attention_mask", "token_type_ids")},
    ),
    "gpt2": Case(
        "GPT2LMHeadModel 124M, plain torch.nn",
        GPT2LMHeadModel,
        tokens(Gpt2Config.vocab, 2, 1024),
        ["logits"],
        1024,
    ),
    "lstm_lm": Case(
        "LSTM language model, plain torch.nn",
        LstmLanguageModel,
        tokens(10000, 40, 2),
        ["logits"],
        40,
    ),
    "lstm_classifier": Case(
        "bidirectional LSTM classifier, plain torch.nn",
        LstmClassifier,
        tokens(25000, 2, 200),
        ["logits"],
        200,
    ),
}


# --- Counting -------------------------------------------------------------------------------------


class TorchCounter:
    """Replaces torch's contractions by kernels that count 2 FLOPs per multiply-add.

    They return zeros: no value matters here, and contractions are nearly all of the time."""

    def __init__(self):
        self.flops = 0
        self.library = torch.library.Library("aten", "IMPL")
        for name in ("mm", "bmm", "addmm", "baddbmm"):
            self.library.impl(name, self.product, "CPU")
        self.library.impl("mkldnn_convolution", self.convolution, "CPU")

    def product(self, *args, **scales):
        x, y = args[-2:]
        self.flops += 2 * x.numel() * y.shape[-1]
        return x.new_zeros(*x.shape[:-1], y.shape[-1])

    def convolution(self, x, weight, bias, padding, stride, dilation, groups):
        out = [x.shape[0], weight.shape[0]]
        for n, k, s, p, d in zip(x.shape[2:], weight.shape[2:], stride, padding, dilation):
            out.append((n + 2 * p - d * (k - 1) - 1) // s + 1)
        self.flops += 2 * math.prod(out) * weight[0].numel()
        return x.new_zeros(out)


def count_onnx(model):
    """Contraction FLOPs by op_type, from the shapes that onnx infers for the stripped graph."""
    inferred = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph
    shapes = {i.name: tuple(i.dims) for i in inferred.initializer}
    for v in [*inferred.input, *inferred.value_info, *inferred.output]:
        shapes[v.name] = tuple(d.dim_value for d in v.type.tensor_type.shape.dim)
    flops = collections.Counter()
    for n in inferred.node:
        attrs = {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}
        if n.op_type == "Conv":
            depth = math.prod(shapes[n.input[1]][1:])
            flops["Conv"] += 2 * math.prod(shapes[n.output[0]]) * depth
        elif n.op_type == "MatMul":
            flops["MatMul"] += 2 * math.prod(shapes[n.output[0]]) * shapes[n.input[0]][-1]
        elif n.op_type == "Gemm":
            depth = shapes[n.input[0]][0 if attrs.get("transA") else 1]
            flops["Gemm"] += 2 * math.prod(shapes[n.output[0]]) * depth
        elif n.op_type == "LSTM":
            steps, batch, inputs = shapes[n.input[0]]
            hidden = attrs["hidden_size"]
            directions = 2 if attrs.get("direction") == b"bidirectional" else 1
            flops["LSTM"] += 2 * directions * steps * batch * 4 * hidden * (inputs + hidden)
    return dict(flops)


# --- Stripping ------------------------------------------------------------------------------------


def strip_tensor(t, always):
    """Drops the values of a weight, or of a large constant."""
    limit = KEEP_FLOAT_BYTES if t.data_type in FLOATS else KEEP_BYTES - 1
    if not always and numpy_helper.to_array(t).nbytes <= limit:
        return
    kept = TensorProto(name=t.name, dims=t.dims, data_type=t.data_type)
    kept.data_location = TensorProto.EXTERNAL
    kept.external_data.add(key="location", value="stripped")
    t.CopyFrom(kept)


def strip(model):
    for t in model.graph.initializer:
        strip_tensor(t, always=t.data_type in FLOATS)
    for n in model.graph.node:
        for a in n.attribute:
            assert a.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS), n.name
            if a.type == onnx.AttributeProto.TENSOR:
                strip_tensor(a.t, always=False)


def export(name, case, counter):
    torch.manual_seed(0)
    net = case.build().train()
    inputs = tuple(case.inputs.values())
    counter.flops = 0
    with torch.no_grad():
        result = net(*inputs)
    flops = counter.flops
    outputs = [result] if isinstance(result, torch.Tensor) else list(result)
    parameters = sum(p.numel() for p in net.parameters())

    stream = io.BytesIO()
    dynamic = dict(case.dynamic)
    if dynamic:
        dynamic.update({o: {0: "batch"} for o in case.outputs})
    torch.onnx.export(
        net,
        inputs,
        stream,
        training=torch.onnx.TrainingMode.TRAINING,
        do_constant_folding=False,
        keep_initializers_as_inputs=False,
        opset_version=case.opset,
        input_names=list(case.inputs),
        output_names=case.outputs,
        dynamic_axes=dynamic or None,
    )
    model = onnx.load_from_string(stream.getvalue())
    del stream
    onnx.checker.check_model(model)

    # Every weight goes by torch's name and none is missing: a tied weight appears once.
    owned = {k: tuple(p.shape) for k, p in net.named_parameters()}
    buffers = dict(net.named_buffers())
    present = {i.name: tuple(i.dims) for i in model.graph.initializer}
    assert {k: s for k, s in present.items() if k in owned} == owned, set(owned) - set(present)
    assert set(present) <= set(owned) | set(buffers), set(present) - set(owned) - set(buffers)
    used_buffers = [k for k in present if k in buffers]

    strip(model)
    for key, value in (
        ("weft.source", case.source),
        ("weft.parameters", str(parameters)),
        ("weft.buffers", "\n".join(used_buffers)),
    ):
        model.metadata_props.add(key=key, value=value)
    data = model.SerializeToString(deterministic=True)
    (OUT / (name + ".onnx")).write_bytes(data)

    # onnx 1.12 cannot infer the shapes that a symbolic batch leaves to be computed.
    by_op = {} if dynamic else count_onnx(model)
    assert dynamic or sum(by_op.values()) == flops, (by_op, flops)
    print(f"{name}: {len(data)} bytes, {parameters} parameters, {flops} FLOPs")
    return {
        "source": case.source,
        "opset": case.opset,
        "batch": 2,
        "sequence": case.sequence,
        "inputs": {k: list(v.shape) for k, v in case.inputs.items()},
        "outputs": {o: list(t.shape) for o, t in zip(case.outputs, outputs)},
        "parameters": parameters,
        "parameter_tensors": len(owned),
        "buffers": len(used_buffers),
        "contraction_flops_forward": flops,
        **({"contraction_flops_by_op": by_op} if by_op else {}),
        "nodes": dict(sorted(collections.Counter(n.op_type for n in model.graph.node).items())),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: every file")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(2)
    counter = TorchCounter()
    path = OUT / "expected.json"
    expected = json.loads(path.read_text()) if path.exists() else {}
    for name in args.names or CASES:
        expected[name] = export(name, CASES[name], counter)
    expected = {name: expected[name] for name in CASES if name in expected}
    path.write_text(json.dumps(expected, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
