"""Settings of the S3 store: the `FRAZIL_S3_*` variables and AWS's usual sources of keys.

Keys are searched in AWS's order: the environment, a web identity token, the shared files of the AWS
command line, the container, the instance. This module reads the shared files; obstore does the
others.
"""

from __future__ import annotations

import configparser
import ipaddress
import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DEFAULT_REGION = "us-east-1"

# The file is read again after this time, so that a rotated key needs no restart.
_FILE_KEYS_LIVE = timedelta(minutes=10)
_PROCESS_TIMEOUT_S = 60

# Settings of profiles that need a login or another call to AWS to get keys.
_INDIRECT = ("role_arn", "sso_session", "sso_start_url", "login_session")


@dataclass(frozen=True, slots=True)
class S3Settings:
    endpoint: str | None = None
    """A URL such as http://127.0.0.1:9000; None for AWS itself."""
    region: str = DEFAULT_REGION
    path_style: bool = False
    """Whether the bucket is in the path instead of the host name."""

    def __post_init__(self) -> None:
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f"the S3 endpoint {self.endpoint!r} is not a URL: "
                "begin FRAZIL_S3_ENDPOINT with http:// or https://"
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> S3Settings:
        path_style = environ.get("FRAZIL_S3_PATH_STYLE")
        return cls.completed(
            environ.get("FRAZIL_S3_ENDPOINT"),
            environ.get("FRAZIL_S3_REGION"),
            _boolean(path_style) if path_style else None,
            environ,
        )

    @classmethod
    def completed(
        cls,
        endpoint: str | None,
        region: str | None,
        path_style: bool | None,
        environ: Mapping[str, str],
    ) -> S3Settings:
        """Return settings in which missing values come from the same sources as in AWS's tools."""
        endpoint = endpoint or _first(environ, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        region = region or _first(environ, "AWS_REGION", "AWS_DEFAULT_REGION")
        if path_style is None:
            # Few stores other than AWS have a host name for each bucket.
            path_style = endpoint is not None
        return cls(
            endpoint=endpoint,
            region=region or read_profile(environ).get("region") or DEFAULT_REGION,
            path_style=path_style or (endpoint is not None and _has_no_subdomains(endpoint)),
        )

    def bucket_endpoint(self, bucket: str) -> str | None:
        """Return the endpoint for obstore. Without path style the bucket is part of the host."""
        if self.endpoint is None or self.path_style:
            return self.endpoint
        scheme, _, host = self.endpoint.rstrip("/").partition("://")
        return f"{scheme}://{bucket}.{host}"

    def client_properties(self) -> dict[str, str]:
        """Return what clients need to reach the same store, with the names that Java and PyIceberg
        read. It contains no secret."""
        properties = {"s3.region": self.region, "client.region": self.region}
        if self.endpoint is not None:
            properties["s3.endpoint"] = self.endpoint
        if self.endpoint is not None or self.path_style:
            properties["s3.path-style-access"] = "true" if self.path_style else "false"
            properties["s3.force-virtual-addressing"] = "false" if self.path_style else "true"
        return properties


@dataclass(frozen=True, slots=True)
class S3Keys:
    access_key_id: str
    secret_access_key: str
    session_token: str | None
    expires_at: datetime


class ProfileError(ValueError):
    """A profile in AWS's shared files that cannot be used. The message says what to do instead."""


def wants_profile(environ: Mapping[str, str]) -> bool:
    """Check whether AWS's shared files provide the keys: no earlier source does, and they can."""
    if environ.get("AWS_ACCESS_KEY_ID") or environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        return False
    profile = read_profile(environ)
    wanted = ("aws_access_key_id", "credential_process", *_INDIRECT)
    return "AWS_PROFILE" in environ or any(key in profile for key in wanted)


def profile_keys(environ: Mapping[str, str]) -> S3Keys:
    """Read the keys of the selected profile."""
    name = _profile_name(environ)
    profile = read_profile(environ)
    if "aws_access_key_id" in profile:
        if "aws_secret_access_key" not in profile:
            raise ProfileError(f"the AWS profile {name!r} has no aws_secret_access_key: add it")
        return S3Keys(
            profile["aws_access_key_id"],
            profile["aws_secret_access_key"],
            profile.get("aws_session_token"),
            datetime.now(UTC) + _FILE_KEYS_LIVE,
        )
    if "credential_process" in profile:
        return _process_keys(name, profile["credential_process"])
    indirect = next((key for key in _INDIRECT if key in profile), None)
    if indirect is not None:
        raise ProfileError(
            f"the AWS profile {name!r} uses {indirect}, which is not read here: set "
            f"credential_process = aws configure export-credentials --profile {name} in a profile "
            "of its own and choose that by AWS_PROFILE"
        )
    raise ProfileError(
        f"the AWS profile {name!r} has no keys: add aws_access_key_id and aws_secret_access_key "
        "to ~/.aws/credentials, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
    )


def read_profile(environ: Mapping[str, str]) -> dict[str, str]:
    """Read the selected profile. Entries of the credentials file override those of the config
    file."""
    name = _profile_name(environ)
    home = Path(environ.get("HOME") or os.path.expanduser("~")) / ".aws"
    config = _ini(environ.get("AWS_CONFIG_FILE"), home / "config")
    credentials = _ini(environ.get("AWS_SHARED_CREDENTIALS_FILE"), home / "credentials")
    section = "default" if name == "default" else f"profile {name}"
    return {**config.get(section, {}), **credentials.get(name, {})}


def _profile_name(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_PROFILE") or "default"


def _ini(chosen: str | None, default: Path) -> dict[str, dict[str, str]]:
    path = Path(chosen).expanduser() if chosen else default
    # Disable interpolation and DEFAULT inheritance, as AWS does.
    parser = configparser.RawConfigParser(default_section="")
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise ProfileError(f"cannot read AWS's file {path}: {error}") from error
    return {section: dict(parser.items(section)) for section in parser.sections()}


def _process_keys(name: str, command: str) -> S3Keys:
    """Run the `credential_process` of the profile, as AWS's tools do."""
    try:
        ended = subprocess.run(
            shlex.split(command), capture_output=True, check=True, timeout=_PROCESS_TIMEOUT_S
        )
        answer: dict[str, Any] = json.loads(ended.stdout)
        expiration = answer.get("Expiration")
        expires_at = datetime.fromisoformat(expiration) if expiration else None
        return S3Keys(
            answer["AccessKeyId"],
            answer["SecretAccessKey"],
            answer.get("SessionToken"),
            expires_at or datetime.now(UTC) + _FILE_KEYS_LIVE,
        )
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, AttributeError) as error:
        # The text of the error could contain the output of the process, and so the keys.
        raise ProfileError(
            f"the credential_process of the AWS profile {name!r} gave no keys "
            f"({type(error).__name__}): run it by hand to see why"
        ) from None


def _has_no_subdomains(endpoint: str) -> bool:
    """Check whether a host is an address or `localhost`, which have no subdomains for buckets."""
    host = urlsplit(endpoint).hostname or ""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "1", "yes", "on"):
        return True
    if text.lower() in ("false", "0", "no", "off"):
        return False
    raise ValueError(f"FRAZIL_S3_PATH_STYLE is {text!r}: write true or false")
