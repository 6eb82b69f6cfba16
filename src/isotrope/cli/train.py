"""``isotrope train``: fine-tune a sentence encoder."""

from isotrope.cli.training import EXIT_CODES, Training, train
from isotrope.training.settings import TrainSettings

EPILOG = """\
examples:
  isotrope train wiki.txt.gz --dev stsb/dev.tsv --eval-every 50 --output runs/wiki
  isotrope train docs/ --views adjacent --dev auto --output runs/docs
  isotrope train pairs.tsv --query-prompt "query: " --passage-prompt "passage: " --output runs/p
  isotrope train wiki.txt --objective barlowtwins --objective.dissipation margin:0.3 --output runs/b
  isotrope train pairs.tsv --objective.temperature auto --head none --output runs/audited
  isotrope train audits/pairs/grouped.jsonl --groups label --output runs/grouped
  isotrope train pairs.tsv --loss GISTEmbedLoss --loss.guide all-MiniLM-L6-v2 --output runs/gist
  isotrope train wiki.txt --devices 4 --batch-size 1024 --output runs/wide
  isotrope train wiki.txt --batch-size 4096 --micro-batch 64 --output runs/large
  isotrope train user/dataset --streaming 1000000 --max-steps 20000 --output runs/streamed
  isotrope train --config runs/wiki/config.yaml --output runs/again
  isotrope train wiki.txt --output runs/wiki --resume

In the YAML file of --config, --batch-size 64 is `batch-size: 64`, and --objective.temperature 0.05
is `objective.temperature: 0.05`. A flag overrides the file. --objective.temperature auto uses the
value that `isotrope audit` recommends for the data and the encoder.

The same flags give the same training on several devices (with other dropout masks, and without the
--refit that --recipe auto chooses): --batch-size counts the rows on all devices, and the loss
compares all of them. On several machines, leave out --devices, and start torchrun --nnodes 2
--nproc-per-node 4 ... -m isotrope train ... The --output folder must be on a shared file system.
"""


run = Training(
    "train",
    TrainSettings,
    train,
    "Fine-tune a sentence encoder on texts, pairs or scored pairs.",
    EPILOG + EXIT_CODES,
    usage="isotrope train FILE ... --output DIR [settings]",
)
