"""What vendors' data sheets say of known devices: the peak of their matrix products, their memory, how fast it is read."""

from dataclasses import dataclass

from ..errors import Registry


@dataclass(frozen=True)
class Device:
    """A device as its data sheet has it.

    Attributes:
        words: that its driver's name for it has, all of them.
        bfloat16, tf32, float32: FLOP/s of dense matrix products, without sparsity; float32 is without TF32.
        memory: bytes. bandwidth: bytes/s of it.
        source: the data sheet.
    """

    words: tuple[str, ...]
    bfloat16: float
    tf32: float
    float32: float
    memory: float
    bandwidth: float
    source: str

    def peak(self, precision: str) -> float:
        """FLOP/s in "bfloat16", "tf32" or "float32"."""
        return {"bfloat16": self.bfloat16, "tf32": self.tf32}.get(precision, self.float32)


_A100, _H100 = "NVIDIA A100 Tensor Core GPU, data sheet", "NVIDIA H100 Tensor Core GPU, data sheet"

# A data sheet that gives the number with sparsity alone: half of it. Of several that fit a name, the first.
DEVICES: Registry[Device] = Registry("device")
DEVICES |= {
    "b200": Device(("B200",), 2250e12, 1100e12, 75e12, 180e9, 7.7e12, "NVIDIA HGX B200, data sheet (an eighth)"),
    "h200": Device(("H200",), 989e12, 494.5e12, 67e12, 141e9, 4.8e12, "NVIDIA H200 Tensor Core GPU, data sheet (SXM)"),
    "h100-pcie": Device(("H100", "PCIe"), 756e12, 378e12, 51e12, 80e9, 2.0e12, f"{_H100} (PCIe)"),
    "h100": Device(("H100", "HBM3"), 989e12, 494.5e12, 67e12, 80e9, 3.35e12, f"{_H100} (SXM)"),
    "a100-40": Device(("A100", "40GB"), 312e12, 156e12, 19.5e12, 40e9, 1.555e12, f"{_A100} (40 GB)"),
    "a100": Device(("A100", "SXM4", "80GB"), 312e12, 156e12, 19.5e12, 80e9, 2.039e12, f"{_A100} (80 GB, SXM)"),
    "l40s": Device(("L40S",), 362e12, 183e12, 91.6e12, 48e9, 0.864e12, "NVIDIA L40S, data sheet"),
    "l4": Device(("L4",), 121e12, 60e12, 30.3e12, 24e9, 0.3e12, "NVIDIA L4 Tensor Core GPU, data sheet"),
    "rtx4090": Device(("RTX", "4090"), 165.2e12, 82.6e12, 82.6e12, 24e9, 1.008e12, "NVIDIA Ada GPU architecture"),
    "mi300x": Device(("MI300X",), 1307.4e12, 653.7e12, 163.4e12, 192e9, 5.3e12, "AMD Instinct MI300X, data sheet"),
}


def recognise(name: str) -> Device | None:
    """The device that a driver calls so (`torch.cuda.get_device_name`); None for one that is not in the table.

    >>> recognise("NVIDIA H100 80GB HBM3") is DEVICES["h100"], recognise("NVIDIA GeForce GTX 1060")
    (True, None)
    """
    words = name.replace("-", " ").split()
    return next((device for device in DEVICES.values() if all(word in words for word in device.words)), None)
