"""The version of Leasehold, and the user agent that its clients send."""

VERSION = "0.1.0.dev0"

USER_AGENT = f"leasehold/{VERSION}"
