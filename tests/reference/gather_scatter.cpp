// All-gathers and reduce-scatters as libraries perform them: contiguous messages without coordinates, which each member
// packs from its blocks and unpacks again. One collective has messages of one size; parts of different sizes are
// padded, or sent in separate messages.
#include <limits>
#include <stdexcept>

#include "reference/interpreter.h"
#include "reference/rounding.h"

namespace weft::reference {
namespace {

using Message = std::vector<double>;

// The messages of a collective for one group of devices. `parts`: the blocks on the side where tensors are split.
class Group {
 public:
  Group(const Communicate& communicate, std::vector<int> members, const std::vector<const std::vector<Block>*>& parts)
      : communicate_(communicate), members_(std::move(members)), parts_(parts) {
    for (const std::vector<Block>* blocks : parts_) {
      std::size_t largest = 0;
      for (int member : members_) largest = std::max(largest, size_of((*blocks)[static_cast<std::size_t>(member)]));
      largest_.push_back(largest);
    }
  }

  const std::vector<int>& members() const { return members_; }

  // Packs the message of one member's parts; `fill` gives the numbers of a part. Only padded messages have padding
  // after a part, which must not be read.
  template <class Fill>
  Message message(int owner, const Fill& fill) const {
    Message message;
    for (std::size_t b = 0; b < parts_.size(); ++b) {
      const Block& part = (*parts_[b])[static_cast<std::size_t>(owner)];
      fill(b, part, message);
      if (communicate_.parts == Parts::Padded)
        message.resize(message.size() + largest_[b] - size_of(part), std::numeric_limits<double>::quiet_NaN());
    }
    return message;
  }
  // Unpacks: the offset of each part.
  template <class Take>
  void take_apart(int owner, const Message& message, const Take& take) const {
    std::size_t at = 0;
    for (std::size_t b = 0; b < parts_.size(); ++b) {
      const Block& part = (*parts_[b])[static_cast<std::size_t>(owner)];
      take(b, part, message.data() + at);
      at += communicate_.parts == Parts::Padded ? largest_[b] : size_of(part);
    }
    if (at != message.size()) throw std::runtime_error("a message is not as long as the parts in it");
  }

  // One collective has messages of one size; separate broadcasts and reductions may have any.
  void check_sizes(const std::vector<Message>& messages) const {
    if (communicate_.parts == Parts::Grouped) return;
    for (const Message& message : messages)
      if (message.size() != messages.front().size())
        throw std::runtime_error("a collective has parts of different sizes, neither padded nor grouped");
  }

 private:
  static std::size_t size_of(const Block& block) { return block.values().size(); }

  const Communicate& communicate_;
  const std::vector<int> members_;
  const std::vector<const std::vector<Block>*>& parts_;
  std::vector<std::size_t> largest_;  // by buffer
};

}  // namespace

void Interpreter::gather_or_scatter(const Communicate& communicate, const Mesh& mesh) {
  const bool gathers = communicate.collective == Collective::AllGather;
  const std::size_t buffers = communicate.inputs.size();
  const auto sent = [&](double value) {
    return rounds_ && communicate.wire ? rounded(value, *communicate.wire) : value;
  };
  std::vector<const std::vector<Block>*> in, parts;
  std::vector<std::vector<Block>> out;
  for (std::size_t b = 0; b < buffers; ++b) {
    in.push_back(&read(communicate.inputs[b]));
    out.push_back(parts_of(program().buffers[communicate.outputs[b]].layout, mesh));
  }
  for (std::size_t b = 0; b < buffers; ++b) parts.push_back(gathers ? in[b] : &out[b]);
  for (int leader = 0; leader < mesh.size(); ++leader) {
    if (mesh.group_leader(leader, communicate.axes) != leader) continue;
    const Group group(communicate, mesh.group(leader, communicate.axes), parts);
    if (gathers) {
      std::vector<Message> messages;  // of each member, to all
      for (int owner : group.members())
        messages.push_back(group.message(owner, [&](std::size_t, const Block& part, Message& message) {
          for (double value : part.values()) message.push_back(sent(value));
        }));
      group.check_sizes(messages);
      for (int member : group.members()) {
        std::vector<std::size_t> arrived(buffers, 0);
        for (std::size_t i = 0; i < messages.size(); ++i)
          group.take_apart(group.members()[i], messages[i], [&](std::size_t b, const Block& part, const double* from) {
            Block& whole = out[b][static_cast<std::size_t>(member)];
            part.for_each(
                [&](const std::vector<std::int64_t>& at, std::size_t offset) { whole.at(at) = from[offset]; });
            arrived[b] += part.values().size();
          });
        for (std::size_t b = 0; b < buffers; ++b)
          if (arrived[b] != out[b][static_cast<std::size_t>(member)].values().size())
            throw std::runtime_error("an all-gather does not bring as many elements as it must deliver");
      }
      continue;
    }
    std::vector<Message> sums;  // of what all contribute, to each member
    for (int owner : group.members()) {
      Message sum;
      for (int contributor : group.members()) {
        const Message message = group.message(owner, [&](std::size_t b, const Block& part, Message& filled) {
          const Block& contribution = (*in[b])[static_cast<std::size_t>(contributor)];
          part.for_each(
              [&](const std::vector<std::int64_t>& at, std::size_t) { filled.push_back(sent(contribution.at(at))); });
        });
        if (contributor == group.members().front())
          sum = message;
        else
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += message[i];
      }
      sums.push_back(std::move(sum));
    }
    group.check_sizes(sums);
    for (std::size_t i = 0; i < sums.size(); ++i)
      group.take_apart(group.members()[i], sums[i], [&](std::size_t b, const Block&, const double* from) {
        for (double& value : out[b][static_cast<std::size_t>(group.members()[i])].values()) value = sent(*from++);
      });
  }
  for (std::size_t b = 0; b < buffers; ++b) write(communicate.outputs[b], std::move(out[b]));
}

}  // namespace weft::reference
