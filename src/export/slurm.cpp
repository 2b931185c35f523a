// Slurm (sbatch, srun): a node's torchrun as one task, on as many nodes as the plan has.
#include <fmt/format.h>

#include "base/units.h"
#include "export/export.h"
#include "export/targets.h"

namespace weft {

Result<std::string> slurm_script(Target target, const Plan& plan, const ExportOptions& options) {
  WEFT_TRY(const std::string inner, export_plan(target, plan, options));
  const TrainingJob& job = *plan.job;
  WEFT_TRY(const std::int64_t per_node, devices_per_node(job));
  const std::int64_t nodes = job.device_count() / per_node;
  std::string text = "#!/bin/bash\n";
  text += fmt::format(
      "#SBATCH --job-name={}\n#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node={}\n",
      job.words.model.substr(0, job.words.model.find_first_of(":/")), nodes, per_node);
  text += "#SBATCH --exclusive\n#SBATCH --output=%x-%j.log\n";
  text += fmt::format("# {} on {} devices: sbatch this file in the folder that {} runs in.\nset -euo pipefail\n",
                      print(shorthand_of(*plan.parallelism)), grouped(job.device_count()), name_of(target));
  text += "export MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1) MASTER_PORT=29500\n";
  const std::string file = target == Target::DeepSpeed                                 ? "ds_config.json"
                           : target == Target::Torchtitan || target == Target::PyTorch ? "weft_plan.py"
                                                                                       : "weft_plan.sh";
  // The file stands in the job's folder, which every node sees.
  text += fmt::format("cat > {} <<'WEFT_PLAN'\n{}WEFT_PLAN\n", file, inner);
  if (target == Target::Megatron) {
    text += fmt::format("srun bash -c 'NODE_RANK=$SLURM_PROCID exec bash {}'\n", file);
  } else {
    const std::string launch = fmt::format(
        "torchrun --nnodes {} --nproc-per-node {} --node-rank $SLURM_PROCID --master-addr $MASTER_ADDR "
        "--master-port $MASTER_PORT",
        nodes, per_node);
    if (target == Target::DeepSpeed)
      text += fmt::format(
          "# TRAIN: your training script, which passes --deepspeed_config to deepspeed.initialize.\n"
          "srun bash -c 'exec {} '\"${{TRAIN:?your training script}}\"' --deepspeed_config {}'\n",
          launch, file);
    else if (target == Target::Torchtitan)
      text += fmt::format(
          "srun bash -c 'PYTHONPATH=.:${{PYTHONPATH:-}} exec {} -m torchtitan.train --module weft_plan --config "
          "weft_plan'\n",
          launch);
    else
      text += fmt::format("srun bash -c 'exec {} {}'\n", launch, file);
  }
  return text;
}

}  // namespace weft
