GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-16}
WORLD=$(($GPUS_PER_NODE*$NUM_NODES))
MODEL=(
  --num-layers 96 --hidden-size 12288 --num-attention-heads 96
  --seq-length 2048 --max-position-embeddings 2048
  --attention-backend auto
)
TRAIN=(--micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 --lr 6.0e-5 --clip-grad 1.0 --fp16
  --hidden-dropout 0.1 --attention-dropout 0.1)
PARALLEL=(--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16)
DATA=(--data-path $DATA_PATH --tokenizer-type GPT2BPETokenizer --vocab-file $VOCAB --merge-file $MERGE --split 949,50,1)
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py ${MODEL[@]} "${TRAIN[@]}" ${PARALLEL[@]} ${DATA[@]}
