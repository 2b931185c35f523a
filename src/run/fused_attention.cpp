#include "run/fused_attention.h"

#include <cmath>

#include "base/check.h"
#include "run/torch_version.h"
#if TORCH_VERSION_MAJOR >= 2
#include <ATen/ops/_flash_attention_backward.h>
#include <ATen/ops/_flash_attention_forward.h>
#endif

namespace weft::runtime {

bool has_fused_attention(const Signature& signature, const AxisSlices& slices, const Tensor& query) {
  if (TORCH_VERSION_MAJOR < 2 || !query.is_cuda()) return false;
  if (query.scalar_type() != at::kBFloat16 && query.scalar_type() != at::kHalf) return false;
  const auto axis = [&](std::string_view name) { return static_cast<std::size_t>(signature.axis_named(name)); };
  const auto whole = [&](std::string_view name) {
    return slices[axis(name)].size() == signature.axes[axis(name)].size;
  };
  const Attrs& attrs = signature.attrs;
  return whole("q") && whole("t") && slices[axis("e")].size() == slices[axis("d")].size() &&
         signature.axes[axis("e")].size <= 256 && signature.axes[axis("q")].size == signature.axes[axis("t")].size &&
         attrs.integer("alibi", 0) == 0 && attrs.integer("window", 0) <= 0 && attrs.integer("zigzag", 1) <= 1 &&
         attrs.number("softcap", 0) <= 0;
}

void fused_attention([[maybe_unused]] Kernel& k) {
#if TORCH_VERSION_MAJOR >= 2
  const std::int64_t b = k.size("b"), q = k.size("q"), t = k.size("t"), heads = k.size("g") * k.size("r"),
                     e = k.size("e");
  const double scale = k.number("scale", 1.0 / std::sqrt(static_cast<double>(k.whole_size("e"))));
  const bool causal = k.integer("causal", 0) != 0;
  const Tensor query = k.in("q").reshape({b, q, heads, e}), key = k.in("k").reshape({b, t, k.size("g"), e}),
               value = k.in("v").reshape({b, t, k.size("g"), e});
  if (!k.backward()) {
    const auto made =
        at::_flash_attention_forward(query, key, value, std::nullopt, std::nullopt, q, t, 0.0, causal, false, scale);
    k.give("y", std::get<0>(made));
    k.give("lse", std::get<1>(made));
    return;
  }
  // Without dropout no random numbers are drawn: what they would begin from is nobody's concern.
  const Tensor unused = at::Tensor(k.in("lse")).new_zeros({2}, at::kUInt64);
  const auto [dq, dk, dv] = at::_flash_attention_backward(
      k.in("dy").reshape({b, q, heads, e}), query, key, value, k.in("y").reshape({b, q, heads, e}),
      k.in("lse").reshape({b, heads, q}), Tensor(), Tensor(), q, t, 0.0, causal, unused, unused, scale);
  k.give("dq", dq);
  k.give("dk", dk);
  k.give("dv", dv);
#else
  WEFT_CHECK(false, "this libtorch has no fused attention");
#endif
}

}  // namespace weft::runtime
