// How a checkpoint is written: tensors dealt to ranks, one file each, all of it renamed at once.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "run/checkpoint.h"
#include "run/checkpoint_names.h"
#include "run/json_text.h"

namespace weft::runtime {
namespace {

namespace fs = std::filesystem;

std::int64_t bytes_of(const KeptTensor& tensor) { return bytes_of_tensor(tensor.dtype, tensor.shape).value(); }

// A file of a checkpoint: who writes it, and which tensors are in it.
struct PlannedFile {
  std::size_t rank = 0;
  std::vector<std::size_t> tensors;
};

// The largest tensor first, each to the one that has least to write of those that hold parts of it. In a file wide types
// come first, so that every tensor lies at a multiple of its elements' size.
std::vector<PlannedFile> dealt(const std::vector<KeptTensor>& tensors, const Program& program) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes_of(tensors[a]) > bytes_of(tensors[b]); });
  std::vector<PlannedFile> files(static_cast<std::size_t>(program.meshes[program.world].size()));
  std::vector<std::int64_t> bytes(files.size(), 0);
  for (std::size_t tensor : order) {
    const auto& holders = program.meshes[program.buffers[tensors[tensor].buffer].layout.mesh].devices();
    const auto least = *std::min_element(holders.begin(), holders.end(), [&](DeviceId a, DeviceId b) {
      return std::pair(bytes[a.index()], a.index()) < std::pair(bytes[b.index()], b.index());
    });
    files[least.index()].tensors.push_back(tensor);
    bytes[least.index()] += bytes_of(tensors[tensor]);
  }
  for (std::size_t rank = 0; rank < files.size(); ++rank) {
    files[rank].rank = rank;
    std::sort(files[rank].tensors.begin(), files[rank].tensors.end(), [&](std::size_t a, std::size_t b) {
      return std::pair(-bits_of(tensors[a].dtype), a) < std::pair(-bits_of(tensors[b].dtype), b);
    });
  }
  std::erase_if(files, [](const PlannedFile& file) { return file.tensors.empty(); });
  return files;
}

// A file that remembers the first thing that went wrong with it.
class Output {
 public:
  explicit Output(std::string path) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    note(file_ >= 0);
  }
  ~Output() {
    if (file_ >= 0) ::close(file_);
  }
  Output(const Output&) = delete;

  void write(const void* bytes, std::size_t count) {
    const char* at = static_cast<const char*>(bytes);
    while (problem_ == 0 && count > 0) {
      const ssize_t written = ::write(file_, at, count);
      if (written < 0 && errno == EINTR) continue;
      if (!note(written > 0)) return;
      at += written;
      count -= static_cast<std::size_t>(written);
      unsynced_ += static_cast<std::size_t>(written);
    }
    // Of large files a bit at a time: what watches over a rank sees it go on.
    if (unsynced_ > kSyncedAtOnce) sync();
  }
  void write(std::string_view text) { write(text.data(), text.size()); }

  // Empty, or why it is not on the disk.
  std::string finish() {
    sync();
    if (file_ >= 0 && ::close(std::exchange(file_, -1)) != 0) note(false);
    return problem_ == 0 ? std::string() : fmt::format("{}: cannot be written: {}", path_, std::strerror(problem_));
  }

 private:
  static constexpr std::size_t kSyncedAtOnce = std::size_t{256} << 20;

  bool note(bool good) {
    if (!good && problem_ == 0) problem_ = errno != 0 ? errno : EIO;
    return good;
  }
  void sync() {
    if (problem_ == 0) note(::fsync(file_) == 0);
    unsynced_ = 0;
  }

  const std::string path_;
  int file_ = -1;
  int problem_ = 0;  // errno
  std::size_t unsynced_ = 0;
};

// What a directory lists is on the disk as well.
std::string synced(const std::string& directory) {
  const int file = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool good = file >= 0 && ::fsync(file) == 0;
  const int problem = errno;
  if (file >= 0) ::close(file);
  return good ? std::string() : fmt::format("{}: {}", directory, std::strerror(problem));
}

SafetensorsHeader header_of(const std::vector<KeptTensor>& tensors, const std::vector<std::size_t>& file,
                            const std::string& digest, const TrainingPosition& position) {
  SafetensorsHeader header;
  // "pt": tensors of PyTorch, without which Hugging Face's readers refuse a file.
  header.metadata = {{"format", "pt"}, {"step", std::to_string(position.steps)}, {"digest", digest}};
  std::int64_t at = 0;
  for (std::size_t i : file) {
    header.tensors.push_back({tensors[i].name, tensors[i].dtype, tensors[i].shape, at, at + bytes_of(tensors[i])});
    at = header.tensors.back().end;
  }
  return header;
}

std::string index_of(const std::vector<KeptTensor>& tensors, const std::vector<PlannedFile>& files,
                     const Bundle& bundle, const std::string& digest, const TrainingPosition& position) {
  std::int64_t total = 0;
  std::string map;
  for (std::size_t file = 0; file < files.size(); ++file)
    for (std::size_t i : files[file].tensors) {
      total += bytes_of(tensors[i]);
      map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",", json_string(tensors[i].name),
                         json_string(file_name(file, files.size())));
    }
  return fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {},\n    \"step\": {},\n    \"samples\": {},\n    \"seed\": "
      "\"{}\",\n"
      "    \"model\": {},\n    \"digest\": \"{}\",\n    \"strategy\": {}\n  }},\n  \"weight_map\": {{{}\n  }}\n}}\n",
      total, position.steps, position.samples, bundle.seed, json_string(bundle.model), digest,
      json_string(bundle.strategy), map);
}

// `made` takes its name among the checkpoints, whole; `latest` follows.
std::string publish(const std::string& directory, const std::string& made, std::int64_t step) {
  const std::string name = step_name(step), whole = directory + "/" + name, latest = directory + "/latest",
                    next = directory + "/" + std::string(kUnfinishedPrefix) + "latest";
  if (std::string problem = synced(made); !problem.empty()) return problem;
  if (std::rename(made.c_str(), whole.c_str()) != 0) return fmt::format("{}: {}", whole, std::strerror(errno));
  ::unlink(next.c_str());
  if (::symlink(name.c_str(), next.c_str()) != 0 || std::rename(next.c_str(), latest.c_str()) != 0)
    return fmt::format("{}: {}", latest, std::strerror(errno));
  return synced(directory);
}

}  // namespace

Status prepare_saving(const std::string& directory, std::int64_t done) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (problem || !fs::is_directory(directory, problem))
    return error("--save {}: cannot be made: {}", directory, problem ? problem.message() : "it is not a directory");
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    return error("--save {}: cannot be written: {}", directory, std::strerror(errno));
  if (const std::vector<std::int64_t> steps = steps_in(directory); !steps.empty() && steps.back() > done)
    return error("--save {}: has {} already; --resume goes on from it, or name another directory", directory,
                 step_name(steps.back()));
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(directory, problem))
    if (entry.path().filename().string().starts_with(kUnfinishedPrefix)) unfinished.push_back(entry.path());
  for (const fs::path& each : unfinished) fs::remove_all(each, problem);  // another rank may be at it too
  return Ok{};
}

Result<std::string> save_checkpoint(Executor& executor, const Bundle& bundle, int device, const std::string& directory,
                                    const TrainingPosition& position) {
  const std::vector<KeptTensor> tensors = kept_tensors(bundle);
  const std::vector<PlannedFile> files = dealt(tensors, bundle.program);
  const std::string digest = model_digest(bundle.graph), made = directory + "/" + unfinished_name(position.steps);
  const auto remove_made = [&] {
    std::error_code ignored;
    if (device == 0) fs::remove_all(made, ignored);
  };

  remove_made();  // of a run that was ended while it saved this step
  std::string problem;
  if (device == 0 && ::mkdir(made.c_str(), 0777) != 0) problem = fmt::format("{}: {}", made, std::strerror(errno));
  WEFT_TRY(problem, executor.agree_on(problem));
  if (!problem.empty()) return problem;

  std::optional<Output> own;
  std::size_t rounds = 0;
  for (std::size_t file = 0; file < files.size(); ++file) {
    rounds = std::max(rounds, files[file].tensors.size());
    if (files[file].rank != static_cast<std::size_t>(device)) continue;
    own.emplace(made + "/" + file_name(file, files.size()));
    own->write(print(header_of(tensors, files[file].tensors, digest, position)));
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    std::vector<BufferId> wanted(static_cast<std::size_t>(bundle.world_size()));  // by device
    for (const PlannedFile& file : files)
      if (round < file.tensors.size()) wanted[file.rank] = tensors[file.tensors[round]].buffer;
    WEFT_TRY_OK(
        executor.deliver(wanted, [&](std::span<const std::byte> whole) { own->write(whole.data(), whole.size()); }));
  }
  problem = own ? own->finish() : std::string();
  WEFT_TRY(problem, executor.agree_on(problem));
  if (problem.empty() && device == 0) {
    Output index(made + "/" + std::string(kIndexName));
    index.write(index_of(tensors, files, bundle, digest, position));
    problem = index.finish();
    if (problem.empty()) problem = publish(directory, made, position.steps);
  }
  if (!problem.empty()) remove_made();
  return executor.agree_on(problem);
}

}  // namespace weft::runtime
