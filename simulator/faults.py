"""What goes wrong with simulated devices."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Faults:
    """Probabilities, all 0 by default. A round is one call to report() for each experiment.

    offline    in a round, that a device with a connection loses it: reports wait in its outbox
    online     in a round, that a device without a connection gets it back
    duplicate  of a report, that its acknowledgement is lost: it is sent again under a new packet id
    late       of a device, that it sends nothing before the last round is over
    reboot     in a round, that a device restarts: before its readings, or after the broker had its report and
               before the device noted that down, so that it sends the report again. Both are equally likely
    """

    offline: float = 0.0
    online: float = 0.5
    duplicate: float = 0.0
    late: float = 0.0
    reboot: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            chance = getattr(self, field.name)
            if not 0 <= chance <= 1:
                raise ValueError(f"{field.name} must be a probability from 0 to 1, not {chance}")
