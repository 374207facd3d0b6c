import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import java.net.InetAddress;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;

/**
 * Sends from an application thread, in one of two modes.
 *
 * <ul>
 *   <li>{@code flush}: the application thread encodes each message and calls writeAndFlush.
 *   <li>{@code batch}: the application thread queues the message; the event loop writes all that
 *       wait, each in a buffer of its own, and flushes once. It never lingers for more.
 * </ul>
 *
 * <p>Both respect the channel's writability: what waits is bounded, and a sender that is too fast
 * blocks, as it does on the other transports.
 */
final class NettySender implements NettyPeer.Commands {
    private static final int QUEUE_BYTES = 4 << 20;
    private static final long SLEEP_MARGIN_NS = 300_000;

    private final Bootstrap bootstrap = new Bootstrap();
    private Outbox outbox;

    NettySender(EventLoopGroup loop) {
        bootstrap.group(loop);
        bootstrap.channel(NettyPeer.EPOLL ? EpollSocketChannel.class : NioSocketChannel.class);
        bootstrap.option(ChannelOption.TCP_NODELAY, true);
        bootstrap.option(
                ChannelOption.WRITE_BUFFER_WATER_MARK,
                new WriteBufferWaterMark(QUEUE_BYTES / 2, QUEUE_BYTES));
    }

    @Override
    public String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "connect" -> connect(words[1], Integer.parseInt(words[2]));
            case "close" -> outbox.channel.close().sync();
            case "latency" -> {
                double rate = Double.parseDouble(words[3]);
                double limit = Double.parseDouble(words[4]);
                return latency(Integer.parseInt(words[1]), Integer.parseInt(words[2]), rate, limit);
            }
            case "rate" -> {
                return rate(Integer.parseInt(words[1]), Long.parseLong(words[2]));
            }
            default -> throw new IllegalArgumentException("unknown command: " + words[0]);
        }
        return NettyPeer.READY;
    }

    private void connect(String mode, int port) throws InterruptedException {
        outbox = mode.equals("batch") ? new Batching() : new Flushing();
        bootstrap.handler(outbox);
        Channel channel = bootstrap.connect(InetAddress.getLoopbackAddress(), port).sync().channel();
        outbox.channel = channel;
    }

    /** Open loop, as pace() in peer.py: a message is due at its time whatever came before it. */
    private String latency(int size, int count, double rate, double limitS) {
        double interval = 1e9 / rate;
        long start = System.nanoTime() + 2_000_000;
        long limit = start + (long) (limitS * 1e9);
        int sent = 0;
        while (sent < count) {
            long due = start + (long) (sent * interval);
            long ahead = due - System.nanoTime();
            if (ahead > SLEEP_MARGIN_NS) {
                LockSupport.parkNanos(ahead - SLEEP_MARGIN_NS);
            }
            long now;
            while ((now = System.nanoTime()) < due) {
                Thread.yield();
            }
            if (now > limit) {
                break;
            }
            outbox.send(new NettyPeer.Message(size, due, now, sent++));
        }
        outbox.send(new NettyPeer.Message(size, 0, 0, NettyPeer.Message.END));
        outbox.drain();
        return "{\"start_ns\": " + start + ", \"sent\": " + sent + "}";
    }

    private String rate(int size, long count) {
        long cpuNs = NettyPeer.cpuNs();
        long start = System.nanoTime();
        for (long sequence = 0; sequence < count; sequence++) {
            outbox.send(new NettyPeer.Message(size, start, start, sequence));
        }
        outbox.drain();
        cpuNs = NettyPeer.cpuNs() - cpuNs;
        return "{\"start_ns\": " + start + ", \"cpu_ns\": " + cpuNs + "}";
    }

    private abstract static class Outbox extends ChannelInboundHandlerAdapter {
        Channel channel;

        abstract void send(NettyPeer.Message message);

        /** Whether everything has been handed to the kernel. */
        boolean isEmpty() {
            return channel.bytesBeforeUnwritable() > QUEUE_BYTES;
        }

        final void drain() {
            await(this::isEmpty);
        }

        final void await(BooleanSupplier condition) {
            long limit = System.nanoTime() + TimeUnit.SECONDS.toNanos(NettyPeer.TIMEOUT_S);
            while (!condition.getAsBoolean()) {
                if (!channel.isActive() || System.nanoTime() > limit) {
                    throw new IllegalStateException("the receiver takes no more messages");
                }
                LockSupport.parkNanos(20_000);
            }
        }
    }

    private static final class Flushing extends Outbox {
        @Override
        void send(NettyPeer.Message message) {
            if (!channel.isWritable()) {
                await(channel::isWritable);
            }
            ByteBuf frame = channel.alloc().directBuffer(message.frameBytes());
            message.encode(frame);
            channel.writeAndFlush(frame, channel.voidPromise());
        }
    }

    private static final class Batching extends Outbox {
        private final ConcurrentLinkedQueue<NettyPeer.Message> queue = new ConcurrentLinkedQueue<>();
        private final AtomicLong queuedBytes = new AtomicLong();
        private final AtomicBoolean scheduled = new AtomicBoolean();

        @Override
        void send(NettyPeer.Message message) {
            if (queuedBytes.get() > QUEUE_BYTES) {
                await(() -> queuedBytes.get() <= QUEUE_BYTES);
            }
            queuedBytes.addAndGet(message.frameBytes());
            queue.add(message);
            schedule();
        }

        private void schedule() {
            if (scheduled.compareAndSet(false, true)) {
                channel.eventLoop().execute(this::writeAll);
            }
        }

        private void writeAll() {
            scheduled.set(false);
            NettyPeer.Message message;
            while (channel.isWritable() && (message = queue.poll()) != null) {
                ByteBuf frame = channel.alloc().directBuffer(message.frameBytes());
                message.encode(frame);
                queuedBytes.addAndGet(-message.frameBytes());
                channel.write(frame, channel.voidPromise());
            }
            channel.flush();
        }

        @Override
        public void channelWritabilityChanged(ChannelHandlerContext context) {
            if (channel.isWritable() && !queue.isEmpty()) {
                schedule();
            }
        }

        @Override
        boolean isEmpty() {
            return queue.isEmpty() && super.isEmpty();
        }
    }
}
