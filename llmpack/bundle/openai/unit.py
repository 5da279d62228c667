"""The systemd unit that runs the server without a container."""

from __future__ import annotations

from llmpack.bundle.openai.command import DEFAULTS, systemd_command
from llmpack.bundle.openai.options import ARTIFACT_DIR, OpenAIPlan
from llmpack.bundle.openai.resources import GRACE_PERIOD_S, PRE_STOP_S

Directive = tuple[str, str]
Section = tuple[str, list[Directive]]


def bundle_place(plan: OpenAIPlan) -> str:
    """Where the unit expects the bundle: a relative path cannot stand in a unit."""
    return f"/srv/{plan.model_name}"


def build_unit(plan: OpenAIPlan) -> list[Section]:
    """Sections with their directives in order; Source: systemd.unit(5), systemd.service(5), systemd.exec(5)."""
    return [
        (
            "Unit",
            [
                ("Description", f"OpenAI-compatible server of {plan.model_name} ({plan.command.engine})"),
                ("Wants", "network-online.target"),
                ("After", "network-online.target"),
            ],
        ),
        ("Service", [*_process(plan), *_limits(plan), *_hardening(plan)]),
        ("Install", [("WantedBy", "multi-user.target")]),
    ]


def render_unit(sections: list[Section]) -> str:
    """The unit's text."""
    return "\n".join(f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in lines) for name, lines in sections)


def _process(plan: OpenAIPlan) -> list[Directive]:
    place, variables = bundle_place(plan), plan.command.variables
    artifact = ARTIFACT_DIR if plan.is_artifact_inside else str(plan.model_dir or "")
    return [
        ("Type", "exec"),
        ("DynamicUser", "yes"),
        ("WorkingDirectory", place),
        ("Environment", f"PATH={place}/venv/bin:/usr/local/bin:/usr/bin:/bin"),
        ("Environment", f"{variables}_HOST={DEFAULTS.host} {variables}_PORT={DEFAULTS.port}"),
        *_cache(plan),
        ("EnvironmentFile", f"{place}/.env"),
        ("ExecStart", systemd_command(plan.command, artifact)),
        ("KillMode", "mixed"),
        ("TimeoutStopSec", str(GRACE_PERIOD_S - PRE_STOP_S)),
        ("Restart", "on-failure"),
        ("RestartSec", "5"),
    ]


def _cache(plan: OpenAIPlan) -> list[Directive]:
    """A directory for what vLLM downloads and compiles; llmpack writes nothing."""
    if plan.command.engine == "llmpack":
        return []
    directory = f"/var/cache/{plan.resource_name}"
    return [("CacheDirectory", plan.resource_name), ("Environment", f"HOME={directory}")]


def _limits(plan: OpenAIPlan) -> list[Directive]:
    memory = [("MemoryMax", f"{plan.resources.memory_mib}M")] if plan.resources.is_exact else []
    return [*memory, ("LimitNOFILE", "65536")]


def _hardening(plan: OpenAIPlan) -> list[Directive]:
    """Devices stay visible to engines that run on them."""
    devices = [] if plan.resources.accelerator else [("PrivateDevices", "yes")]
    return [
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        *devices,
        ("ProtectKernelTunables", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelLogs", "yes"),
        ("ProtectControlGroups", "yes"),
        ("ProtectClock", "yes"),
        ("ProtectHostname", "yes"),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX AF_NETLINK"),
        ("RestrictNamespaces", "yes"),
        ("RestrictRealtime", "yes"),
        ("RestrictSUIDSGID", "yes"),
        ("LockPersonality", "yes"),
        ("CapabilityBoundingSet", ""),
        ("SystemCallArchitectures", "native"),
        ("SystemCallFilter", "@system-service"),
        ("UMask", "0077"),
    ]
