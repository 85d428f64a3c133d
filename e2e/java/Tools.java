import java.io.*;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs command-line tools one after the other in this virtual machine. A request is the tool's class, the number of its
 * arguments, each argument, all on lines of their own, then the number of bytes of its input and these bytes. The answer
 * is a line with the exit code and the lengths of what was printed on stdout and stderr, then both.
 */
public class Tools {
  /** Thrown where a tool exits; some catch even that, so the first code counts. */
  static final class Ended extends Error {
    Ended() { super(null, null, false, false); }
  }

  static volatile Integer code;

  static void ended(int status) {
    if (code == null) code = status;
    throw new Ended();
  }

  /** Whatever is current; Scala's Console keeps the stream that it saw first. */
  static final class Switch extends OutputStream {
    volatile ByteArrayOutputStream to = new ByteArrayOutputStream();
    @Override public void write(int b) { to.write(b); }
    @Override public void write(byte[] b, int off, int n) { to.write(b, off, n); }
  }

  static String line(InputStream in) throws IOException {
    ByteArrayOutputStream b = new ByteArrayOutputStream();
    for (int c; (c = in.read()) != '\n'; b.write(c))
      if (c < 0) System.exit(0);
    return b.toString(StandardCharsets.UTF_8);
  }

  public static void main(String[] none) throws Exception {
    InputStream in = new BufferedInputStream(System.in);
    PrintStream answers = System.out;
    Switch out = new Switch(), err = new Switch();
    System.setOut(new PrintStream(out, true));
    System.setErr(new PrintStream(err, true));
    Exit.setExitProcedure((status, message) -> ended(status));
    Exit.setHaltProcedure((status, message) -> ended(status));
    Exit.setShutdownHookAdder((name, hook) -> { });
    for (;;) {
      String tool = line(in);
      String[] args = new String[Integer.parseInt(line(in))];
      for (int i = 0; i < args.length; i++) args[i] = line(in);
      System.setIn(new ByteArrayInputStream(in.readNBytes(Integer.parseInt(line(in)))));
      out.to = new ByteArrayOutputStream();
      err.to = new ByteArrayOutputStream();
      code = null;
      try {
        Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) args);
      } catch (ReflectiveOperationException e) {
        if (!(e.getCause() instanceof Ended)) {
          code = 1;
          e.printStackTrace();
        }
      }
      System.out.flush();
      System.err.flush();
      byte[] o = out.to.toByteArray(), x = err.to.toByteArray();
      answers.print((code == null ? 0 : code) + " " + o.length + " " + x.length + "\n");
      answers.write(o);
      answers.write(x);
      answers.flush();
    }
  }
}
