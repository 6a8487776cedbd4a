// Delivers what is due for the sink `default`, then ends: claims a batch, handles each message, completes them together.
// It needs JDBC_URL. A service would wait and repeat. `postrider run` does the same with retries, limits and metrics.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.ArrayList;

public class Worker {
    static final String WORKER = "worker-" + ProcessHandle.current().pid();

    /** May see a message a second time: delivery is at least once. */
    static void handle(String topic, String payload) {
        System.out.println(topic + " " + payload);
    }

    /** Claims and handles one batch, and says how many messages it had. */
    static int deliver(Connection connection) throws SQLException {
        var ids = new ArrayList<String>();
        var tokens = new ArrayList<String>();
        var states = new ArrayList<String>();
        var delays = new ArrayList<Long>();
        var errors = new ArrayList<String>();
        // lane_run: one message of a lane at a time. What is behind one that fails must not be sent before it.
        try (var claim = connection.prepareStatement("""
                select message_id, lease_token, topic, payload, attempt_count
                from outbox.claim(worker_id => ?, batch_size => 100, lease_seconds => 60, lane_run => 1)""")) {
            claim.setString(1, WORKER);
            try (var row = claim.executeQuery()) {
                while (row.next()) {
                    ids.add(row.getString(1));
                    tokens.add(row.getString(2));
                    try {
                        handle(row.getString(3), row.getString(4));
                        states.add("DISPATCHED");
                        delays.add(null);
                        errors.add(null);
                    } catch (RuntimeException error) {
                        // Due again after 2, 4, 8 … seconds; dead after the tenth attempt.
                        states.add("RETRYABLE");
                        delays.add(1L << row.getInt(5));
                        errors.add(error.toString());
                    }
                }
            }
        }
        try (var complete = connection.prepareStatement("""
                select count(*) from outbox.complete_many(
                    message_id => ?, lease_token => ?, state => ?, retry_after_seconds => ?, error_message => ?,
                    worker_id => ?)""")) {
            complete.setArray(1, connection.createArrayOf("uuid", ids.toArray()));
            complete.setArray(2, connection.createArrayOf("uuid", tokens.toArray()));
            complete.setArray(3, connection.createArrayOf("text", states.toArray()));
            complete.setArray(4, connection.createArrayOf("numeric", delays.toArray()));
            complete.setArray(5, connection.createArrayOf("text", errors.toArray()));
            complete.setString(6, WORKER);
            try (var row = complete.executeQuery()) {
                row.next();
                if (row.getInt(1) < ids.size()) {
                    System.out.println("leases were lost: another worker has these messages");
                }
            }
        }
        return ids.size();
    }

    public static void main(String[] arguments) throws SQLException {
        // With autocommit, which is the default, the claim is committed before anything is handled.
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            while (deliver(connection) > 0) {
                // The next batch.
            }
        }
    }
}
