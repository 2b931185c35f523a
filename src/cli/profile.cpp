// weft profile, weft show profile: databases of measured events.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/csv.h"
#include "base/read_file.h"
#include "base/units.h"
#include "base/whole_file.h"
#include "cli/commands.h"
#include "profile/database.h"
#include "profile/table.h"
#include "report/table.h"

namespace weft {
namespace {

struct ImportArguments {
  std::string database, device, date;
  std::vector<std::string> files;
};

// The date in provenance.json in the table's folder (written by tools/measure_gpu.py); empty if there is none.
std::string provenance_date(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  constexpr FileKind kProvenance{"a provenance.json of tools/measure_gpu.py", 1 << 20};
  const Result<std::string> text =
      read_file(path.substr(0, slash == std::string::npos ? 0 : slash + 1) + "provenance.json", kProvenance);
  if (!text.ok()) return "";
  const nlohmann::json made = nlohmann::json::parse(*text, nullptr, false);
  if (!made.is_array() || made.empty() || !made[0].is_object() || !made[0].contains("date")) return "";
  return made[0]["date"].is_string() ? made[0]["date"].get<std::string>() : "";
}

Result<std::string> import_tables(const ImportArguments& arguments) {
  std::vector<MeasuredEvent> events;
  std::string text;
  for (const std::string& path : arguments.files) {
    WEFT_TRY(const CsvTable table, read_csv(path));
    const std::string date = arguments.date.empty() ? provenance_date(path) : arguments.date;
    WEFT_TRY(ProfileTable rows, profile_rows(table, path, {.date = date, .source = path}));
    text += fmt::format("{}: {} row{}, {} skipped\n", path, grouped(static_cast<std::int64_t>(table.rows.size())),
                        table.rows.size() == 1 ? "" : "s", grouped(static_cast<std::int64_t>(rows.skipped.size())));
    std::map<std::string, std::vector<std::int64_t>> reasons;
    for (const SkippedEvent& row : rows.skipped) reasons[row.reason].push_back(row.line);
    for (const auto& [reason, lines] : reasons) {
      const std::string more =
          lines.size() == 1 ? "" : fmt::format(" and {} more", grouped(static_cast<std::int64_t>(lines.size() - 1)));
      text += fmt::format("  line {}{}: {}\n", lines.front(), more, reason);
    }
    for (MeasuredEvent& event : rows.events) {
      if (!arguments.device.empty()) event.event.device = arguments.device;
      events.push_back(std::move(event));
    }
  }
  WEFT_TRY(ProfileDatabase database, ProfileDatabase::to_write(arguments.database));
  WEFT_TRY(const std::int64_t added, database.add(events));
  return text + fmt::format("{}: {} new sample{}\n", arguments.database, grouped(added), added == 1 ? "" : "s");
}

struct ProfileExportArguments {
  std::string database, out;
};

Result<Answer> export_table(const ProfileExportArguments& arguments) {
  WEFT_TRY(const std::vector<MeasuredEvent> events, read_profile(arguments.database));
  const std::string table = profile_csv(events);
  if (arguments.out.empty()) return Answer{table};
  Result<WholeFile> file = WholeFile::create(arguments.out);
  if (!file.ok()) return file.error().at("--out");
  file->write(table);
  if (const Status finished = file->finish(); !finished.ok())
    return Answer{.text = "", .unwritten = finished.error().at("--out")};
  return Answer{fmt::format("{}: {} events\n", arguments.out, grouped(static_cast<std::int64_t>(events.size())))};
}

struct MergeArguments {
  std::string database;
  std::vector<std::string> from;
};

Result<std::string> merge_databases(const MergeArguments& arguments) {
  // All tables are read before any is added.
  for (const std::string& path : arguments.from) {
    if (const auto events = read_profile(path); !events.ok()) return events.error();
  }
  WEFT_TRY(ProfileDatabase into, ProfileDatabase::to_write(arguments.database));
  std::string text;
  for (const std::string& path : arguments.from) {
    WEFT_TRY(const std::int64_t added, merge_profile(into, path));
    text +=
        fmt::format("{}: {} new sample{} from {}\n", arguments.database, grouped(added), added == 1 ? "" : "s", path);
  }
  return text;
}

struct Summary {
  std::int64_t events = 0, samples = 0;
  double least_s = 0, most_s = 0;
  std::set<std::string> variants;
  std::string last;
};

Result<std::string> show_profile(const std::string& path, bool json) {
  WEFT_TRY(const std::vector<MeasuredEvent> events, read_profile(path));
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, Summary> rows;
  std::int64_t samples = 0;
  for (const MeasuredEvent& measured : events) {
    const Event& event = measured.event;
    const std::string direction =
        is_communication(event) ? fmt::format("{} × {}", event.nodes, event.most_per_node) : event.direction;
    Summary& row = rows[{event.device, event.stack, event.op, event.dtype, direction}];
    const Sample all = pooled(measured.samples);
    row.least_s = row.events == 0 ? all.mean_s : std::min(row.least_s, all.mean_s);
    row.most_s = std::max(row.most_s, all.mean_s);
    row.last = std::max(row.last, all.date);
    if (!event.variant.empty()) row.variants.insert(event.variant);
    ++row.events;
    row.samples += static_cast<std::int64_t>(measured.samples.size());
    samples += static_cast<std::int64_t>(measured.samples.size());
  }
  if (json) {
    nlohmann::json made = {{"file", path}, {"schema", kProfileSchema}, {"events", events.size()}, {"samples", samples}};
    made["operators"] = nlohmann::json::array();
    for (const auto& [key, row] : rows)
      made["operators"].push_back({{"device", std::get<0>(key)},
                                   {"stack", std::get<1>(key)},
                                   {"operator", std::get<2>(key)},
                                   {"dtype", std::get<3>(key)},
                                   {"direction", std::get<4>(key)},
                                   {"events", row.events},
                                   {"samples", row.samples},
                                   {"least_s", row.least_s},
                                   {"most_s", row.most_s},
                                   {"variants", row.variants},
                                   {"last", row.last}});
    return to_text(made);
  }
  std::string text = fmt::format("{}: {} events, {} samples\n", path, grouped(static_cast<std::int64_t>(events.size())),
                                 grouped(samples));
  std::string device, stack;
  Table table;
  const auto flush = [&] {
    if (!table.rows.empty()) text += table.print() + "\n";
    table = Table{{{}, {}, {}, {.right = true}, {.right = true}, {.right = true}, {.most = 40}}};
    table.add({"operator", "dtype", "direction", "events", "shortest", "longest", "variants"});
  };
  for (const auto& [key, row] : rows) {
    if (std::get<0>(key) != device || std::get<1>(key) != stack) {
      if (!device.empty()) flush();
      device = std::get<0>(key);
      stack = std::get<1>(key);
      text += fmt::format("\n{}{}\n", device, stack.empty() ? "" : ", " + stack);
      table.rows.clear();
      flush();
    }
    table.add({std::get<2>(key), std::get<3>(key), std::get<4>(key), grouped(row.events), human(Seconds{row.least_s}),
               human(Seconds{row.most_s}), fmt::format("{}", fmt::join(row.variants, ", "))});
  }
  if (!table.rows.empty()) text += table.print();
  return text;
}

}  // namespace

void add_profile(CLI::App& app, Chosen& chosen) {
  CLI::App* profile = app.add_subcommand(
      "profile",
      "Databases of measured operators and collectives, for --cost measured: measure, import, export, merge.");
  profile->require_subcommand(1);
  add_profile_measure(*profile, chosen);
  {
    const auto arguments = std::make_shared<ImportArguments>();
    CLI::App* command = profile->add_subcommand("import", "Add measurements from tables (.csv) to a database.");
    command->footer(
        "\nTables are those of tools/measure_gpu.py, or what weft profile export writes. Rows that cannot be used are\n"
        "skipped and listed with the reason; samples that are there already are not added again.\n"
        "\nExample:\n"
        "  weft profile import --db h200.db measurements/h200/operators.csv\n");
    command->add_option("--db", arguments->database, "the database; made where there is none")->required();
    command->add_option("files", arguments->files, "tables of measurements (.csv)")->required();
    command->add_option("--device", arguments->device, "what the device is called (default: as in the table)");
    command->add_option("--date", arguments->date,
                        "of rows that have none (default: as provenance.json beside the table says)");
    command->callback([arguments, &chosen] { chosen = [arguments] { return finish(import_tables(*arguments)); }; });
  }
  {
    const auto arguments = std::make_shared<ProfileExportArguments>();
    CLI::App* command = profile->add_subcommand("export", "Write a database as a table (.csv).");
    command->add_option("--db", arguments->database, "the database")->required();
    command->add_option("--out", arguments->out, "the table (default: stdout)");
    command->callback([arguments, &chosen] { chosen = [arguments] { return finish(export_table(*arguments)); }; });
  }
  {
    const auto arguments = std::make_shared<MergeArguments>();
    CLI::App* command = profile->add_subcommand("merge", "Add what other databases have to one.");
    command->add_option("--db", arguments->database, "the database that is added to; made where there is none")
        ->required();
    command->add_option("from", arguments->from, "databases to read")->required();
    command->callback([arguments, &chosen] { chosen = [arguments] { return finish(merge_databases(*arguments)); }; });
  }
}

void add_show_profile(CLI::App& show, Chosen& chosen) {
  struct Arguments {
    std::string path;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* command = show.add_subcommand("profile", "A database of measured events: what it has, by operator.");
  command->add_option("file", arguments->path, "the database (weft profile import)")->required();
  command->add_flag("--json", arguments->json, "one JSON object");
  command->callback([arguments, &chosen] {
    chosen = [arguments] { return finish(show_profile(arguments->path, arguments->json)); };
  });
}

}  // namespace weft
