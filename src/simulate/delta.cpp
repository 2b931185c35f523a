#include "simulate/delta.h"

#include "simulate/delta_state.h"

namespace weft {

using namespace engine;

void Simulator::State::build() {
  machine = std::make_unique<Machine>(workload, SimulateOptions{.network = options.network},
                                      EditSupport{options.streams, &pool});
  index.clear();
  named = true;
  for (const AgentId agent : workload.agents.ids()) {
    auto found = machine->script(agent.index()).positions(workload.agents[agent].tasks.size());
    named &= found.has_value();
    index.emplace_back(workload.agents[agent], found ? std::move(*found) : TaskPositions{});
  }
  twins = Twins(workload);
}

std::int64_t Simulator::State::executed() const {
  std::int64_t count = 0;
  for (const AgentId leader : twins.leaders())
    count += static_cast<std::int64_t>(machine->script(leader.index()).executed());
  return count;
}

bool Simulator::State::play_all(std::optional<Picoseconds> bound) {
  machine->set_leaders(twins.leaders());
  machine->reset();
  tasks = executed();
  entries = {{std::make_shared<const Checkpoint>(machine->save()), 0}};
  const std::int64_t before = machine->tasks();
  std::int64_t saved = before;
  while (!machine->stopped()) {
    machine->step_time();
    if (passes(bound)) return false;
    if (named && machine->tasks() - saved >= interval()) {
      entries.push_back({std::make_shared<const Checkpoint>(machine->save()), 0});
      saved = machine->tasks();
    }
  }
  if (!machine->finished()) return false;
  for (std::uint32_t agent = 0; agent < ends.size(); ++agent) ends[agent] = machine->agent(agent).end;
  return true;
}

Result<Outcome> Simulator::State::apply(WorkloadEdit& edit, std::optional<Picoseconds> bound) {
  settle();
  Undo undo = std::move(spare);
  Outcome outcome{.replayed = fill_gaps(), .tasks = tasks};
  undo.entries = std::move(entries);
  undo.ends = ends;
  undo.tasks = tasks;
  undo.twins = twins;
  if (const Status status = change(edit, undo); !status) {
    take_back(std::move(undo));
    return status.error();
  }
  bool done = false;
  std::optional<std::vector<Edited>> edited;
  if (named) edited = exchange_scripts(undo);
  if (edited) {
    machine->workload_changed(first_changed(undo));
    tasks = executed();
    std::int64_t replayed = 0;
    done = replay(*edited, undo.entries, bound, replayed);
    outcome.replayed += replayed;
  } else {
    settle(undo);
    put_scripts_back(undo);
    undo.machine = std::move(machine);
    undo.index = std::move(index);
    undo.named = named;
    build();
    const std::int64_t before = machine->tasks();
    done = play_all(bound);
    outcome.replayed += machine->tasks() - before;
  }
  outcome.makespan = done ? makespan() : machine->now();
  if (!done && !passes(bound)) {
    const Error fault = machine->fault();
    take_back(std::move(undo));
    return fault;
  }
  outcome.abandoned = bound && outcome.makespan > *bound;
  if (outcome.abandoned) {
    take_back(std::move(undo));
  } else {
    log.push_back(std::move(undo));
  }
  return outcome;
}

Simulator::Simulator(std::unique_ptr<State> state) : state_(std::move(state)) {}
Simulator::Simulator(Simulator&&) noexcept = default;
Simulator& Simulator::operator=(Simulator&&) noexcept = default;
Simulator::~Simulator() = default;

Result<Simulator> Simulator::make(Workload workload, const DeltaOptions& options) {
  WEFT_TRY_OK(check(workload));
  auto state = std::make_unique<State>();
  state->workload = std::move(workload);
  state->options = options;
  state->ends.resize(state->workload.agents.size());
  state->build();
  if (!state->play_all(std::nullopt)) return state->machine->fault();
  return Simulator(std::move(state));
}

const Workload& Simulator::workload() const {
  state_->settle();
  return state_->workload;
}
Picoseconds Simulator::makespan() const { return state_->makespan(); }
const std::vector<Picoseconds>& Simulator::ends() const { return state_->ends; }

Result<Outcome> Simulator::apply(WorkloadEdit&& edit, std::optional<Picoseconds> bound) {
  return state_->apply(edit, bound);
}

void Simulator::undo() {
  WEFT_CHECK(!state_->log.empty(), "no edit is in force");
  Undo undo = std::move(state_->log.back());
  state_->log.pop_back();
  state_->take_back(std::move(undo));
}

void Simulator::commit() {
  constexpr int kTidy = 256;
  state_->settle();
  for (const Undo& undo : state_->log)
    for (std::size_t i = 1; i < undo.patches.size(); ++i)
      undo.patches[i].share(state_->machine->script(undo.patches[i].agent()),
                            state_->machine->script(undo.patches[i - 1].agent()));
  if (!state_->log.empty()) {
    state_->spare = std::move(state_->log.back());
    state_->spare.clear();
    state_->log.clear();
  }
  if (++state_->commits % kTidy != 0) return;
  for (const AgentId agent : state_->workload.agents.ids())
    state_->index[agent.index()].find_followers(state_->workload.agents[agent]);
}

}  // namespace weft
