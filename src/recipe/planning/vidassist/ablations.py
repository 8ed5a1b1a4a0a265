"""The settings beside a setting: who proposes, each value function left out, other beams, and the two baselines."""

from typing import Any

from recipe.planning.vidassist.settings import VidAssistConfig

_BEAMS = (1, 2, 4)


def ablations(config: VidAssistConfig) -> dict[str, VidAssistConfig]:
    """Name to setting; the given one comes first, and none twice. A baseline has none but itself."""
    changes: dict[str, dict[str, Any]] = {"as given": {}}
    if config.method == "vidassist":
        if config.proposers == "both":
            changes |= {f"{name} alone": {"proposers": name} for name in ("original", "recipe")}
        if len(config.active) > 1:
            left = {name: [other for other in config.active if other != name] for name in config.active}
            changes |= {f"without {name}": {"values": values} for name, values in left.items()}
        changes |= {f"beam {beam}": {"beam": beam} for beam in _BEAMS}
        changes |= {f"{method} baseline": {"method": method} for method in ("agent", "llm")}
    found: dict[str, VidAssistConfig] = {}
    for name, change in changes.items():
        changed = VidAssistConfig.model_validate(config.model_dump() | change)
        if changed not in found.values():
            found[name] = changed
    return found
