import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.AdaptiveRecvByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.LengthFieldBasedFrameDecoder;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Takes messages in the event loop and reads them in place, without a copy to the heap. */
final class NettyReceiver implements NettyPeer.Commands {
    private final ServerBootstrap bootstrap = new ServerBootstrap();
    private Channel server;
    private volatile Collector collector;

    NettyReceiver(EventLoopGroup loop) {
        bootstrap.group(loop);
        bootstrap.channel(
                NettyPeer.EPOLL ? EpollServerSocketChannel.class : NioServerSocketChannel.class);
        bootstrap.childOption(ChannelOption.TCP_NODELAY, true);
        // The default stops at 64 KB per read; larger reads suit the large messages.
        bootstrap.childOption(
                ChannelOption.RECVBUF_ALLOCATOR,
                new AdaptiveRecvByteBufAllocator(2 << 10, 64 << 10, 512 << 10));
        bootstrap.childHandler(
                new ChannelInitializer<Channel>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        int most = NettyPeer.MAX_FRAME_BYTES;
                        channel.pipeline()
                                .addLast(new LengthFieldBasedFrameDecoder(most, 0, 4, 0, 4))
                                .addLast(new Inbound());
                    }
                });
    }

    @Override
    public String obey(String[] words) throws Exception {
        return switch (words[0]) {
            case "open" -> open();
            case "latency" -> latency(Integer.parseInt(words[2]));
            case "rate" -> rate(Long.parseLong(words[2]));
            case "close" -> {
                server.close().sync();
                yield NettyPeer.READY;
            }
            default -> throw new IllegalArgumentException("unknown command: " + words[0]);
        };
    }

    private String open() throws InterruptedException {
        server = bootstrap.bind(InetAddress.getLoopbackAddress(), 0).sync().channel();
        int port = ((InetSocketAddress) server.localAddress()).getPort();
        return "{\"address\": \"" + port + "\"}";
    }

    private String latency(int most) throws InterruptedException {
        Collector latencies = new Collector(Long.MAX_VALUE, most);
        collector = latencies;
        NettyPeer.reply(NettyPeer.READY);
        latencies.await();
        return latencies.toString();
    }

    private String rate(long count) throws InterruptedException {
        Collector counter = new Collector(count, 0);
        collector = counter;
        long cpuNs = NettyPeer.cpuNs();
        NettyPeer.reply(NettyPeer.READY);
        counter.await();
        cpuNs = NettyPeer.cpuNs() - cpuNs;
        return "{\"end_ns\": " + counter.endNs + ", \"cpu_ns\": " + cpuNs + "}";
    }

    private final class Inbound extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            ByteBuf payload = (ByteBuf) message;
            collector.take(payload);
            payload.release();
        }
    }

    /** What one measurement has received: filled by the event loop, read after the latch opens. */
    private static final class Collector {
        private final CountDownLatch done = new CountDownLatch(1);
        private final long wanted;
        private final long[] fromDueNs;
        private final long[] fromSendNs;
        private long count;
        private long endNs;
        private String fault;

        /** Either counts until so many have come, or keeps up to {@code most} latencies. */
        Collector(long wanted, int most) {
            this.wanted = wanted;
            fromDueNs = new long[most];
            fromSendNs = new long[most];
        }

        void take(ByteBuf message) {
            if (fromDueNs.length > 0) {
                measure(message, System.nanoTime());
            } else if (++count == wanted) {
                finish(System.nanoTime());
            }
        }

        private void measure(ByteBuf message, long nowNs) {
            long sequence = message.getLongLE(NettyPeer.Message.SEQUENCE_AT);
            long last = message.getLongLE(message.readableBytes() - NettyPeer.Message.TAIL_BYTES);
            if (sequence == NettyPeer.Message.END) {
                finish(nowNs);
            } else if (sequence != count || last != count) {
                fault = "expected message " + count + ", got " + sequence + " ending in " + last;
                finish(nowNs);
            } else {
                fromDueNs[(int) count] = nowNs - message.getLongLE(NettyPeer.Message.DUE_AT);
                fromSendNs[(int) count] = nowNs - message.getLongLE(NettyPeer.Message.SENT_AT);
                count++;
            }
        }

        private void finish(long nowNs) {
            endNs = nowNs;
            done.countDown();
        }

        void await() throws InterruptedException {
            if (!done.await(NettyPeer.TIMEOUT_S, TimeUnit.SECONDS)) {
                fault = "only " + count + " messages in " + NettyPeer.TIMEOUT_S + " s";
            }
            if (fault != null) {
                throw new IllegalStateException(fault);
            }
        }

        @Override
        public String toString() {
            StringBuilder json = new StringBuilder("{\"end_ns\": ").append(endNs);
            append(json.append(", \"from_due_ns\": ["), fromDueNs);
            append(json.append("], \"from_send_ns\": ["), fromSendNs);
            return json.append("]}").toString();
        }

        private void append(StringBuilder json, long[] values) {
            for (int i = 0; i < count; i++) {
                json.append(i == 0 ? "" : ", ").append(values[i]);
            }
        }
    }
}
