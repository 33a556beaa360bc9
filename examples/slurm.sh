#!/bin/bash
# Train on a Slurm cluster for longer than a job may last: the job saves before its time is up, queues itself again, and goes on.
#
#   sbatch examples/slurm.sh mdlm --data.path notes/ --run runs/notes --train.strategy hybrid
#
# What follows the script is what follows `zellige train`. The run's folder must be one that all nodes see.
#
#SBATCH --job-name=zellige
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8         # a process for each GPU: --train.nodes and --train.devices follow from these two
#SBATCH --gpus-per-node=8           # not --gpus-per-task, with which each process would see but one of them
#SBATCH --cpus-per-task=8
#SBATCH --time=12:00:00
#SBATCH --signal=SIGUSR1@300        # 5 minutes before the end: the step is finished, a checkpoint written, exit code 138
#SBATCH --requeue
#SBATCH --open-mode=append          # one log for all of its jobs
#SBATCH --output=%x-%j.log

srun zellige train "$@" --resume    # in a job of Slurm --resume begins the run, too
code=$?
if [ "$code" -eq 138 ]; then        # 128 + SIGUSR1
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
