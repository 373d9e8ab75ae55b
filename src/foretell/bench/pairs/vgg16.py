"""VGG-16 at the size of ImageNet (survey, Table 3): random images, or `--task images:FOLDER`."""

from foretell.bench.pair import Pair

PAIR = Pair(
    title="VGG-16 at 224 pixels",
    model="vgg16:image=224,dropout=0",
    task="synthetic",
    batch=64,
    optimizer="momentum",
    rate=0.01,
    epoch_samples=1_281_167,
    steps=20,
    look=0,
    target=None,
    device="cuda",
    precision="+amp_bf16",
)
