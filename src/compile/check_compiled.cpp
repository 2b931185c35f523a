#include "compile/check_compiled.h"

#include "base/check.h"
#include "program/verify.h"

namespace weft {

#ifdef WEFT_VERIFY_COMPILED
void check_compiled(const Program& program, const Graph& graph, const Schedule& schedule) {
  const Status verified = verify(program, graph, schedule);
  WEFT_CHECK(verified.ok(), "compiled a wrong program: {}", verified.error().message);
}
#else
void check_compiled(const Program&, const Graph&, const Schedule&) {}
#endif

}  // namespace weft
