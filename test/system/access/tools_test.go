package access

import (
	"context"

	"google.golang.org/grpc"
	channelzv1 "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
)

const (
	healthSvc   = "grpc.health.v1.Health"
	channelzSvc = "grpc.channelz.v1.Channelz"
)

// tools are the rows of gRPC's own services, which are for its tools.
var tools = []row{
	{healthSvc + "/Check", asAnyone, func(ctx context.Context, c *caller) error {
		_, err := healthv1.NewHealthClient(c).Check(ctx, &healthv1.HealthCheckRequest{})
		return err
	}, nil},
	{healthSvc + "/List", asAnyone, func(ctx context.Context, c *caller) error {
		_, err := healthv1.NewHealthClient(c).List(ctx, &healthv1.HealthListRequest{})
		return err
	}, nil},
	{healthSvc + "/Watch", asAnyone, func(ctx context.Context, c *caller) error {
		s, err := healthv1.NewHealthClient(c).Watch(ctx, &healthv1.HealthCheckRequest{})
		if err == nil {
			_, err = s.Recv()
		}
		return err
	}, nil},
	{"grpc.reflection.v1.ServerReflection/ServerReflectionInfo", asAdmin, func(ctx context.Context, c *caller) error {
		s, err := reflectionv1.NewServerReflectionClient(c).ServerReflectionInfo(ctx)
		if err != nil {
			return err
		}
		if err := sent(s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})); err != nil {
			return err
		}
		_, err = s.Recv()
		return err
	}, nil},
	channelz("GetTopChannels", channelzv1.ChannelzClient.GetTopChannels, &channelzv1.GetTopChannelsRequest{}),
	channelz("GetServers", channelzv1.ChannelzClient.GetServers, &channelzv1.GetServersRequest{}),
	channelz("GetServer", channelzv1.ChannelzClient.GetServer, &channelzv1.GetServerRequest{}),
	channelz("GetServerSockets", channelzv1.ChannelzClient.GetServerSockets, &channelzv1.GetServerSocketsRequest{}),
	channelz("GetChannel", channelzv1.ChannelzClient.GetChannel, &channelzv1.GetChannelRequest{}),
	channelz("GetSubchannel", channelzv1.ChannelzClient.GetSubchannel, &channelzv1.GetSubchannelRequest{}),
	channelz("GetSocket", channelzv1.ChannelzClient.GetSocket, &channelzv1.GetSocketRequest{}),
}

// channelz is a row of channelz, which may find nothing of the number 0.
func channelz[Req, Resp any](method string, call func(channelzv1.ChannelzClient, context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req) row {
	return row{channelzSvc + "/" + method, asAdmin, func(ctx context.Context, c *caller) error {
		_, err := call(channelzv1.NewChannelzClient(c), ctx, req)
		return err
	}, []codes.Code{codes.NotFound}}
}
