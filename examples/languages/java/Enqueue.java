// Places orders with JDBC. The order's row and its message are written in one transaction of the application.
// It needs JDBC_URL, an outbox (`postrider migrate up`) and the table of ../schema.sql.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import org.postgresql.util.PSQLException;

public class Enqueue {
    /** A number is null without a lane. */
    record Enqueued(String messageId, Long number, boolean created) {}

    interface Work {
        void run() throws SQLException;
    }

    /** The payload is JSON as text, from whatever writes JSON in your application: a JSON array is text too. */
    static Enqueued enqueue(Connection connection, String topic, String payload, String lane, String dedupeKey)
            throws SQLException {
        // The cast is needed: setString sends a varchar, and there is no enqueue that takes one as its payload.
        try (var call = connection.prepareStatement("""
                select message_id, sequence_id, created
                from outbox.enqueue(topic => ?, payload => ?::jsonb, lane => ?, dedupe_key => ?)""")) {
            call.setString(1, topic);
            call.setString(2, payload);
            call.setString(3, lane);
            call.setString(4, dedupeKey);
            try (var row = call.executeQuery()) {
                row.next();
                return new Enqueued(row.getString(1), row.getObject(2, Long.class), row.getBoolean(3));
            }
        }
    }

    static void placeOrder(Connection connection, long order, String customer, String items) throws SQLException {
        try (var insert = connection.prepareStatement("insert into orders values (?, ?) on conflict do nothing")) {
            insert.setLong(1, order);
            insert.setString(2, customer);
            insert.executeUpdate();
        }
        var placed = enqueue(
                connection, "order.placed", "{\"order\": " + order + "}", customer, "order-" + order + "/placed");
        enqueue(connection, "items.reserved", items, customer, "order-" + order + "/reserved");
        System.out.printf(
                "order %d: created %b, number %d of %s%n", order, placed.created(), placed.number(), customer);
    }

    static void inTransaction(Connection connection, Work work) throws SQLException {
        connection.setAutoCommit(false);
        try {
            work.run();
            connection.commit();
        } catch (SQLException | RuntimeException error) {
            connection.rollback();
            throw error;
        } finally {
            connection.setAutoCommit(true);
        }
    }

    public static void main(String[] arguments) throws SQLException {
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_URL"))) {
            Work place = () -> placeOrder(connection, 40, "customer-6", "[\"lamp\", \"bulb\"]");
            inTransaction(connection, place);

            // The same request again: its keys are known. Nothing is written, and created is false.
            inTransaction(connection, place);

            // A rollback takes both along, and the lane's number is given again.
            try {
                inTransaction(connection, () -> {
                    placeOrder(connection, 41, "customer-6", "[\"desk\"]");
                    throw new IllegalStateException("the card was refused");
                });
            } catch (IllegalStateException refused) {
                try (var statement = connection.createStatement();
                        var row = statement.executeQuery("""
                                select (select count(*) from orders where id = 41), count(*)
                                from outbox.find_keys('order-41/placed')""")) {
                    row.next();
                    System.out.printf(
                            "%s: orders and messages left: %d, %d%n", refused.getMessage(), row.getInt(1), row.getInt(2));
                }
            }

            // What breaks a rule of the outbox is an error with the SQLSTATE 22023, and a hint that says what to do.
            try {
                inTransaction(connection, () -> enqueue(connection, "order.placed", "{}", "", null));
            } catch (PSQLException error) {
                var broken = error.getServerErrorMessage();
                System.out.printf("%s: %s. %s%n", error.getSQLState(), broken.getMessage(), broken.getHint());
            }
        }
    }
}
