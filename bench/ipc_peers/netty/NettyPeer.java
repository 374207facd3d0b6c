import com.sun.management.OperatingSystemMXBean;
import io.netty.buffer.ByteBuf;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.nio.NioIoHandler;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;

/**
 * Netty's side of bench/ipc.py: one process that sends or receives over loopback TCP.
 *
 * <p>It obeys the commands that peer.py documents, with the same message layout and the same pacing.
 * Frames are a four-byte length and the payload. Native epoll is used where there is one.
 */
public final class NettyPeer {
    static final int MAX_FRAME_BYTES = 1 << 20;
    static final long TIMEOUT_S = 8;
    static final boolean EPOLL = Epoll.isAvailable();
    static final String READY = "{\"ready\": true}";

    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private NettyPeer() {}

    /** One role: turns a command's words into its answer. */
    interface Commands {
        String obey(String[] words) throws Exception;
    }

    /** What the benchmark sends: times and sequence in front, the sequence again at the end. */
    record Message(int size, long dueNs, long sentNs, long sequence) {
        static final int DUE_AT = 0;
        static final int SENT_AT = 8;
        static final int SEQUENCE_AT = 16;
        static final int HEADER_BYTES = 24;
        static final int TAIL_BYTES = 8;
        static final long END = -1;
        private static final byte[] PAYLOAD = new byte[MAX_FRAME_BYTES];

        int frameBytes() {
            return Integer.BYTES + size;
        }

        void encode(ByteBuf out) {
            out.writeInt(size).writeLongLE(dueNs).writeLongLE(sentNs).writeLongLE(sequence);
            out.writeBytes(PAYLOAD, 0, size - HEADER_BYTES - TAIL_BYTES).writeLongLE(sequence);
        }
    }

    /** CPU time of all threads of this process, those of the JVM included. */
    static long cpuNs() {
        return SYSTEM.getProcessCpuTime();
    }

    static void reply(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] args) throws Exception {
        EventLoopGroup loop =
                new MultiThreadIoEventLoopGroup(
                        1, EPOLL ? EpollIoHandler.newFactory() : NioIoHandler.newFactory());
        try {
            Commands role =
                    args[0].equals("receive") ? new NettyReceiver(loop) : new NettySender(loop);
            reply(READY);
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                reply(role.obey(line.split(" ")));
            }
        } finally {
            loop.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        }
    }
}
