#include "report/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.h"
#include "report/table.h"

namespace weft {
namespace {

constexpr std::uint32_t kNoPlay = 0xffffffff;

// The content of a column: the mark of the longest activity in it, and its play.
struct Cell {
  std::string mark = " ";
  std::uint32_t play = kNoPlay;
};

struct Window {
  Picoseconds from = 0, to = 0;
};

class Gantt {
 public:
  Gantt(const Plan& plan, const PlayedPlan& played, std::size_t width)
      : played_(played),
        program_(played.compiled.program),
        schedule_(played.compiled.schedule),
        timeline_(played.priced.workload, played.run),
        activities_(activities_of(program_, plan.training().graph)),
        agents_(representatives(plan, played)) {
    const char* what = schedule_.chunks > 1 ? "rank" : "stage";
    std::map<std::int32_t, int> lines;
    for (AgentId agent : agents_) ++lines[played.priced.agents[agent].rank];
    std::map<std::int32_t, int> drawn;
    for (AgentId agent : agents_) {
      const std::int32_t rank = played.priced.agents[agent].rank;
      std::string label = schedule_.ranks == 1 && lines[rank] == 1 ? "every rank" : fmt::format("{} {}", what, rank);
      if (lines[rank] > 1) label += fmt::format(" class {}", drawn[rank]++);
      labels_.push_back(label);
      indent_ = std::max(indent_, columns(label));
    }
    indent_ += 4;
    columns_ = std::max<std::size_t>(width, 60) - indent_;
    choose_windows();
  }

  std::string draw() {
    if (played_.run.makespan == 0) return "";
    std::string text = "timeline: ";
    text += fmt::format("{}, a column is {}\n", human(Seconds{seconds_of(played_.run.makespan)}),
                        human(Seconds{seconds_of(column_)}));
    constexpr std::size_t kMostLines = 40;
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (agents_.size() > kMostLines && i >= kMostLines / 2 && i + kMostLines / 2 < agents_.size()) {
        if (i == kMostLines / 2) text += "  ⋮\n";
        continue;
      }
      text += line(agents_[i], labels_[i]);
    }
    return text + legend();
  }

 private:
  const std::vector<Action>& actions(AgentId agent) const {
    return schedule_.actions[static_cast<std::size_t>(played_.priced.agents[agent].rank)];
  }
  const IssuedBody& issued(AgentId agent, std::uint32_t play) const {
    return played_.priced.issued[static_cast<std::size_t>(played_.priced.agents[agent].rank)][play];
  }

  // The whole step if a forward body's name fits there; else its beginning and its end at that scale.
  void choose_windows() {
    const Picoseconds step = played_.run.makespan;
    const std::vector<Span> spans = timeline_.spans(agents_.front());
    Picoseconds forward = 0;
    std::map<std::uint32_t, Window> bodies;
    for (const Span& span : spans) {
      const IssuedBody& play = issued(agents_.front(), span.play);
      if (play.action < 0 || play.part != Body::Forward) continue;
      if (span.start == span.end || played_.priced.workload.agents[agents_.front()].tasks[span.task].stream !=
                                        static_cast<std::uint8_t>(Stream::Compute))
        continue;
      const auto [found, fresh] = bodies.try_emplace(span.play, Window{span.start, span.end});
      found->second.to = span.end;
    }
    for (const auto& [play, window] : bodies) forward += window.to - window.from;
    if (!bodies.empty()) forward /= static_cast<Picoseconds>(bodies.size());
    const auto count = static_cast<Picoseconds>(columns_);
    column_ = (step + count - 1) / count;
    // Names are shortened to two letters if the warm-up of the pipeline would not fit into the beginning.
    std::size_t letters = 2;
    for (const Action& action : actions(agents_.front())) letters = std::max(letters, name_of(action).size());
    if (static_cast<std::size_t>(schedule_.ranks) * letters > columns_ / 3) letters = 2;
    const auto least = static_cast<Picoseconds>(letters);
    if (forward / least >= column_ || forward < least) {
      windows_ = {{0, step}};
      return;
    }
    column_ = forward / least;
    const Picoseconds half = (count - 3) / 2 * column_;  // three columns are the gap
    windows_ = {{0, half}, {step - half, step}};
  }

  std::string line(AgentId agent, const std::string& label) const {
    std::string text = "  " + padded(label, indent_ - 2);
    for (std::size_t w = 0; w < windows_.size(); ++w) {
      if (w > 0) text += " ⋯ ";
      const std::vector<Cell> cells = cells_of(agent, windows_[w]);
      for (std::size_t at = 0; at < cells.size();) {
        std::size_t end = at + 1;
        while (end < cells.size() && cells[end].play == cells[at].play && cells[at].play != kNoPlay) ++end;
        text += cells[at].play == kNoPlay ? cells[at].mark : block(agent, cells[at].play, end - at);
        at = end;
      }
    }
    while (text.ends_with(' ')) text.pop_back();
    return text + "\n";
  }

  // "F3────", or letters alone if the name does not fit.
  std::string block(AgentId agent, std::uint32_t play, std::size_t width) const {
    const IssuedBody& of = issued(agent, play);
    const bool step = of.action == IssuedBody::kStep;
    const Body body = of.part;
    const std::string name = step ? "S" : name_of_play(schedule_, played_.priced.agents[agent].rank, of);
    const std::string_view fill = step ? "▒" : body == Body::Forward ? "─" : body == Body::BackwardWeight ? "╌" : "═";
    if (columns(name) > width) return repeated(name.substr(0, 1), width);
    return name + repeated(fill, width - columns(name));
  }

  std::vector<Cell> cells_of(AgentId agent, Window window) const {
    const auto count = static_cast<std::size_t>((window.to - window.from + column_ - 1) / column_);
    std::vector<std::map<std::pair<std::string, std::uint32_t>, Picoseconds>> times(count);
    const std::vector<Span> spans = timeline_.spans(agent);
    const Workload& workload = played_.priced.workload;
    for_each_moment(spans, workload.agents[agent], activities_, program_, played_.run.agents[agent].end,
                    played_.run.makespan, [&](const Moment& moment) {
                      Picoseconds from = std::max(moment.from, window.from);
                      const Picoseconds to = std::min(moment.to, window.to);
                      while (from < to) {
                        const auto column = static_cast<std::size_t>((from - window.from) / column_);
                        const Picoseconds end =
                            std::min(to, window.from + static_cast<Picoseconds>(column + 1) * column_);
                        const bool computes = moment.doing == Doing::Compute;
                        const std::string mark = moment.doing == Doing::Communicate ? "~"
                                                 : moment.doing == Doing::Done      ? " "
                                                 : moment.doing == Doing::HostBound ? "h"
                                                                                    : "·";
                        times[column][{computes ? "" : mark, computes ? moment.span->play : kNoPlay}] += end - from;
                        from = end;
                      }
                    });
    std::vector<Cell> cells;
    for (const auto& column : times) {
      Picoseconds most = 0;
      Cell& cell = cells.emplace_back();
      for (const auto& [what, time] : column)
        if (time > most) {
          most = time;
          cell = {what.first, what.second};
        }
    }
    return cells;
  }

  std::string legend() const {
    bool split = false;
    for (const std::vector<Action>& list : schedule_.actions)
      split = split || std::any_of(list.begin(), list.end(),
                                   [](const Action& action) { return action.body == Body::BackwardWeight; });
    std::vector<std::string> words = {
        schedule_.chunks > 1 ? "F3.1 forward of micro-batch 3, chunk 1" : "F3 forward of micro-batch 3", "B backward"};
    if (split) words.insert(words.end(), {"I gradients of inputs", "W gradients of weights"});
    words.insert(words.end(), {"S optimizer step", "~ exposed communication", "· waiting", "h host-bound"});
    if (windows_.size() > 1) words.emplace_back("⋯ the same goes on");
    return wrapped(words, " · ", "  ");
  }

  const PlayedPlan& played_;
  const Program& program_;
  const Schedule& schedule_;
  Timeline timeline_;
  IdVec<InstructionId, Activity> activities_;
  std::vector<AgentId> agents_;
  std::vector<std::string> labels_;
  std::size_t indent_ = 0, columns_ = 0;
  Picoseconds column_ = 1;
  std::vector<Window> windows_;
};

}  // namespace

std::string draw_gantt(const Plan& plan, const PlayedPlan& played, std::size_t width) {
  return Gantt(plan, played, width).draw();
}

}  // namespace weft
