#!/usr/bin/env python3
"""Try to beat the winners of weft plan by hand: tools/beat_plans.json.

  tools/beat_plans.py [--weft build/release/bin/weft] [--effort 1] [--seed 1] [--alike] [NAME...]

Of each problem (or those whose options contain NAME) the best plan is searched; then strategies are simulated that an expert
would try, random ones over the whole shorthand, and what hill climbs from the winners and from the best of them find. Prints
what beats a winner or a proved bound; exit code 1 if any winner is beaten by more than 0.5 %. Changes know nothing of the
search's neighbours. A named stack is kept to what it has code for (presets/stacks.yaml).
"""
import argparse
import concurrent.futures
import itertools
import json
import math
import pathlib
import random
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
DEGREES, MODES = ["tp", "cp", "pp", "dp"], ["none", "selective", "op", "full"]
SCHEDULES = ["1f1b", "interleaved", "gpipe", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipe-v"]
TWO_CHUNKS = ["zb-v", "dualpipe", "dualpipe-v"]
CHANGES = (["degrees"] * 4 + ["stages"] * 4 + ["full"] * 3 + ["mbs", "zero", "schedule", "ep"] * 2
           + ["fsdp", "modes", "order", "recompute", "offload", "fewer", "image", "shares"])


def divisors(number, most=math.inf):
    return [i for i in range(1, int(number) + 1) if number % i == 0 and i <= most]


def text_of(plan):
    return ",".join(f"{key}={value}" for key, value in plan.items())


def of(plan, key):
    return int(plan.get(key) or 1)


def used_by(plan):
    return math.prod(of(plan, key) for key in (*DEGREES, "h", "w"))


def counts_of(text):
    """1+2x3 → [1, 3, 3]"""
    runs = [("1x" + part).split("x")[-2:] for part in (text or "").split("+") if part]
    return [int(size) for times, size in runs for _ in range(int(times))]


def abilities(stack):
    text = (HERE.parent / "presets/stacks.yaml").read_text()
    entry = re.search(rf"^  {re.escape(stack)}:\n((?:    .*\n)+)", text, re.M).group(1)
    can = re.search(r"can: \[([^,\]]*)", entry)
    return set(can.group(1).split()) if can else abilities(re.search(r"like: (\S+)", entry).group(1))


def needs(plan):
    """As needed_by of src/strategy/abilities.cpp."""
    tp, cp, pp, ep = (of(plan, key) > 1 for key in ("tp", "cp", "pp", "ep"))
    zero, again = 3 if "fsdp" in plan else int(plan.get("zero", 0)), plan.get("recompute", "none")
    schedule = plan.get("schedule", "interleaved" if of(plan, "vpp") > 1 else "1f1b")
    ability = {"interleaved": "vpp", "1f1b": "pp", "zb-h1": "zb", "zb-h2": "zb", "gpipe": "gpipe"}.get(schedule, "zb-v")
    needed = {"tp": tp, "sp": tp and plan.get("sp") != "0", "pp": pp, "ep": ep, f"zero{zero}": zero > 0, "pipelined-zero": zero > 1 and pp,
              "etp": ep and plan.get("etp", plan.get("tp")) != plan.get("tp"), "uneven": len(set(counts_of(plan.get("stages")))) > 1,
              "hsdp": "fsdp" in plan and of(plan, "fsdp") < of(plan, "dp"), "modules": "full" in plan, "offload": "offload" in plan,
              "uneven-samples": "shares" in plan, "every-operator": bool({"h", "w", "tables"} & set(plan)), again: again != "none",
              plan.get("cp_mode", "cp").replace("gather", "cp"): cp}
    return {word for word, needed in [*needed.items(), (ability, pp)] if needed}


class Problem:
    def __init__(self, asked, options):
        self.options, self.known, self.random = options, {}, random.Random(f"{options.seed} {asked}")
        self.can = abilities(asked["stack"]) if "stack" in asked else None
        self.words = [word for key, value in asked.items() for word in (f"--{key}", str(value))]
        self.found = self.call("plan", "--threads", str(options.jobs))
        if not self.found or not self.found["feasible"]:
            return
        self.batch, self.seq, self.devices = self.found["global_batch"], self.found["seq"], self.found["devices"]
        asked = {**asked, "cluster": self.found["cluster"], "global-batch": self.batch}  # what was settled: fewer nodes
        self.words = [word for key, value in asked.items() if key != "devices" for word in (f"--{key}", str(value))]
        self.node = max(1, self.devices // sum(int(nodes) for nodes in re.findall(r":(\d+)", asked["cluster"])))
        self.winners = sorted((each for each in self.found["candidates"] if each["feasible"]), key=lambda each: each["step_time_s"])
        modules, layers = set(), set()
        self.by_degrees = [each for each in self.winners if re.fullmatch(r"[a-z_]+=[^, ]+(,[a-z_]+=[^, ]+)*", each["strategy"])]
        shown = self.call("show", "strategy", "--devices", str(self.devices), "--strategy",
                          self.by_degrees[0]["strategy"]) if self.by_degrees else None
        for section in shown["operators"] if shown else []:
            layers.update(section["layers"])
            for each in section["operators"] if section["layers"] else []:
                parts = [re.sub(r"\d+", "*", section["layers"][0]), *each["name"].split(".")]
                modules.update(".".join(parts[:i]) for i in range(2, len(parts) + 1))
        self.modules, self.layers, self.experts = sorted(modules) or ["**"], len(layers), any(".experts" in name for name in modules)

    def call(self, *words, patience=None):
        """The JSON that a command prints; nothing where it is refused."""
        words = [str(self.options.weft), *words, *self.words, "--json"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=patience)
        except subprocess.TimeoutExpired:
            return None
        return json.loads(done.stdout) if done.returncode < 2 and done.stdout else None

    def valid(self, plan):
        can = needs(plan) <= self.can if self.can else "pipelined-zero" not in needs(plan)
        divides = self.batch % (of(plan, "mbs") * (sum(counts_of(plan["shares"])) if "shares" in plan else of(plan, "dp"))) == 0
        alike = not self.options.alike or not re.search(r"layers\.\d", text_of(plan))
        return can and divides and alike and used_by(plan) <= self.devices and text_of(plan) not in self.known

    def simulate(self, plan):
        """Seconds of a step, infinite where it does not fit; None where it is not valid."""
        text, used = text_of(plan), used_by(plan)
        if self.valid(plan):
            got = self.call("simulate", "--strategy", text, "--devices", str(used), patience=self.options.patience)
            same = got and (got["global_batch"], got["seq"]) == (self.batch, self.seq)
            self.known[text] = (got["step_time_s"] if got["feasible"] else math.inf) if same else None
        return self.known.get(text)

    def expert(self):
        """What one would write first: degrees, sharding and experts; recomputation is left to memory."""
        draw, plan, left = self.random, {}, self.devices
        for key, most in (("tp", self.node), ("cp", max(1, (self.seq or 1) // 256)), ("pp", self.layers + 2)):
            plan[key] = draw.choice([1, 1, draw.choice(divisors(left, most))])
            left //= plan[key]
        plan["dp"] = draw.choice([degree for degree in divisors(left) if self.batch % degree == 0][-2:])
        plan["mbs"] = draw.choice(divisors(self.batch // plan["dp"], 4 if plan["pp"] > 1 else math.inf))
        plan["zero"] = 1 if plan["pp"] > 1 else draw.randint(0, 3)
        if plan["pp"] > 1 and self.layers >= 2 * plan["pp"]:
            plan["vpp"] = draw.choice([1, *divisors(self.layers // plan["pp"])])
        if self.experts:
            plan |= {"ep": draw.choice(divisors(plan["tp"] * plan["cp"] * plan["dp"], 128)), "etp": draw.choice([1, plan["tp"]])}
        return plan

    def with_memory(self, plan):
        """The plan with as little recomputation as fits."""
        for mode in MODES:
            tried = {**plan, "recompute": mode}
            if (self.simulate(tried) or 0) < math.inf:
                break
        return tried

    def changed(self, plan, times):
        plan = dict(plan)
        for _ in range(times):
            self.change(plan, self.random.choice(CHANGES))
        return {key: value for key, value in plan.items() if value is not None}

    def change(self, plan, what):
        """One thing, whether or not what results is valid; None: the default."""
        draw, dp, used = self.random, of(plan, "dp"), [key for key in DEGREES if of(plan, key) > 1]
        if what in ("degrees", "fewer"):
            one, other = draw.sample(DEGREES, 2)
            factor = draw.choice(divisors(of(plan, one))[1:] or [1])
            if what == "fewer":
                plan[one] = draw.randint(1, max(1, self.devices * of(plan, one) // used_by(plan)))
            else:
                plan |= {one: of(plan, one) // factor, other: of(plan, other) * factor}
            gone = ["fsdp", "replicate", "stages", "order", "ga", "shares", *["sp"] * (of(plan, "tp") == 1), *["vpp", "schedule"] * (of(plan, "pp") == 1)]
            plan |= {key: None for key in gone} | {"mbs": math.gcd(of(plan, "mbs"), max(1, self.batch // of(plan, "dp")))}
        elif what == "mbs":
            plan |= {"mbs": draw.choice(divisors(max(1, self.batch // dp))), "ga": None}
        elif what == "zero":
            plan |= {"zero": draw.randint(0, 3), "fsdp": None, "replicate": None}
        elif what == "fsdp" and "pp" not in used:
            shards = draw.choice(divisors(dp))
            plan |= {"zero": None, "fsdp": shards, "replicate": dp // shards}
        elif what == "shares":
            parts = draw.choice(divisors(self.batch))  # micro-batches
            more = self.batch // parts % dp
            plan |= {"mbs": 1, "ga": None, "shares": f"{more}x{self.batch // parts // dp + 1}+{dp - more}x{self.batch // parts // dp}" if more else None}
        elif what == "schedule" and "pp" in used:
            schedule = draw.choice(SCHEDULES)
            plan |= {"schedule": schedule, "stages": None, "vpp": draw.randint(2, 10) if schedule == "interleaved" else None}
        elif what == "stages" and "pp" in used and self.layers:
            chunks, counts = of(plan, "pp") * (2 if plan.get("schedule") in TWO_CHUNKS else of(plan, "vpp")), counts_of(plan.get("stages"))
            if len(counts) != chunks or draw.random() < 0.1:
                first, last = draw.choice([(0, 0), (0, 0), (0, 1), (1, 1), (0, 2)])
                counts = [(self.layers + first + last + i) // chunks for i in range(chunks)][::draw.choice([1, -1])]
                counts[0], counts[-1] = counts[0] - first, counts[-1] - last
            else:
                one, other = draw.sample(range(chunks), 2)
                counts[one], counts[other] = counts[one] - 1, counts[other] + 1
            plan["stages"] = "+".join(map(str, counts))
        elif what == "modes":
            plan |= {"cp_mode": draw.choice(["gather", "a2a", "ring"]) if "cp" in used else None, "sp": draw.choice("01") if "tp" in used else None}
        elif what == "order" and len(used) > 1:
            plan["order"] = draw.choice([None, "-".join(draw.sample(used, len(used)))])
        elif what == "recompute":
            plan["recompute"] = draw.choice(MODES)
        elif what in ("full", "offload"):
            name = draw.choice(self.modules)
            name = name.replace("*", draw.choice(["*", "*", "0", "1*", "2*", "3*"]), 1)
            name = name if what == "full" else draw.choice(["optimizer", "activations", "gradients", "weights", "activations:" + name])
            now = [each for each in (plan.get(what) or "").split("+") if each]
            kept = draw.sample(now, len(now) - 1) if now and draw.random() < 0.3 else now
            plan[what] = "+".join([each for each in now if each != name] if name in now else [*kept, name]) or None
        elif what == "ep" and self.experts:
            plan |= {"ep": draw.choice(divisors(of(plan, "tp") * of(plan, "cp") * dp, 256)), "etp": draw.choice([1, of(plan, "tp")])}
        elif what == "image" and self.seq is None:
            plan |= draw.choice([{"tables": 1}, {"h": 2}, {"w": 2}, {"tables": None, "h": None, "w": None}])


def attack(problem, pool, effort):
    """The fastest hand strategy."""
    def fitting(plans, complete=lambda plan: plan):
        timed = pool.map(lambda plan: (problem.simulate(plan), plan), pool.map(complete, plans))
        return [(seconds, plan) for seconds, plan in timed if seconds and seconds < math.inf]

    def climbed(now, rounds):
        for _ in range(rounds):
            drawn = (problem.changed(now[1], problem.random.choice([1, 1, 1, 2, 2, 3])) for _ in range(100))
            now = min([now, *fitting(list(itertools.islice(filter(problem.valid, drawn), 8)))], key=lambda both: both[0])
        return now

    best = fitting([problem.expert() for _ in range(int(30 * effort))], problem.with_memory)
    best += fitting([problem.changed(problem.expert(), 5) for _ in range(int(40 * effort))])
    starts = [(start, 8) for start in sorted(best, key=lambda both: both[0])[:2]]
    for each in problem.by_degrees[:2]:
        starts.append(((each["step_time_s"], dict(item.split("=", 1) for item in each["strategy"].split(","))), 12))
    best += [climbed(start, int(rounds * effort)) for start, rounds in starts]
    return min(best, key=lambda both: both[0], default=(math.inf, {}))


def report(problem, seconds, plan):
    """Prints what was found; whether the winner is beaten."""
    found, winner, times = problem.found, min(problem.winners, key=lambda each: each["step_time_s"]), [time for time in problem.known.values() if time]
    gap = "no gap" if found["gap"] is None else f"{'estimated ' * found['bound_is_estimate']}gap {100 * found['gap']:.1f} %"
    gain = winner["step_time_s"] / seconds - 1
    verdict = f"beaten by {100 * gain:.2f} %: {seconds:.5g} s: {text_of(plan)}" if gain > 0 else f"the best is {-100 * gain:.2f} % slower"
    print(f"  {winner['step_time_s']:.5g} s, {gap}: {winner['strategy']}")
    print(f"  {len(times)} simulated, {sum(time < math.inf for time in times)} fit; {verdict}")
    below = sorted((time, text) for text, time in problem.known.items() if time and time < (found["lower_bound_s"] or 0))
    if below and not found["bound_is_estimate"] and not found["beyond_bound"]:
        print(f"  {len(below)} below the bound of {found['lower_bound_s']:.5g} s: {below[0][0]:.5g} s: {below[0][1]}")
    return gain > 0.005


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default=HERE.parent / "build/release/bin/weft", type=pathlib.Path)
    parser.add_argument("--problems", default=HERE / "beat_plans.json", type=pathlib.Path)
    parser.add_argument("--effort", type=float, default=1, help="how many strategies, relative to some 300 a problem")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--patience", type=float, default=60, help="seconds after which a simulation is given up")
    parser.add_argument("--alike", action="store_true", help="recompute the same in all layers")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    beaten = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for asked in json.loads(options.problems.read_text()):
            words = " ".join(f"--{key} {value}" for key, value in asked.items())
            if options.names and not any(name in words for name in options.names):
                continue
            print(words, flush=True)
            problem = Problem(asked, options)
            if not problem.found or not problem.found["feasible"]:
                print("  nothing fits" if problem.found else "  refused", flush=True)
                continue
            beaten.append(report(problem, *attack(problem, pool, options.effort)))
            sys.stdout.flush()
    print(f"{len(beaten)} problems, {sum(beaten)} winners beaten by more than 0.5 %")
    return 1 if any(beaten) else 0


if __name__ == "__main__":
    sys.exit(main())
