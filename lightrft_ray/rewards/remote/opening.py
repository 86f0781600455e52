"""From settings to a reward service that can be asked."""

from lightrft_ray.config.errors import UserError
from lightrft_ray.config.remote_reward import RemoteRewardConfig
from lightrft_ray.rewards.remote.grpc_transport import GrpcTransport
from lightrft_ray.rewards.remote.http_transport import HttpTransport
from lightrft_ray.rewards.remote.source import RemoteSource


def open_remote(config: RemoteRewardConfig) -> RemoteSource:
    """The source for `remote_rm_url`; connections are made when they are first needed.

    Call it within the event loop that will use it. Raises UserError for settings without an
    address, and for files that cannot be read.
    """
    if not config.addresses:
        raise UserError("remote_rm_url is not set: there is no reward service to ask")
    transport = GrpcTransport(config) if config.speaks_grpc else HttpTransport(config)
    return RemoteSource(config, transport)
