package kudos.bench.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class CoverageTest {
    private final Coverage coverage = new Coverage();

    @Test
    void nothingIsCoveredBeforeTheWholeTransactionIsRead() {
        coverage.seen(0, 100);
        coverage.read(0, 5, 10); // the transaction may extend to offset 10 of the changelog
        assertEquals(0, coverage.events());
        coverage.read(0, 9, 30); // later commits do not delay it
        assertEquals(0, coverage.events());
        coverage.read(0, 10, 30);
        assertEquals(100, coverage.events());
    }

    @Test
    void whatIsReadToTheEndIsCoveredAtOnce() {
        coverage.seen(0, 100);
        coverage.seen(0, 90); // an older count, written later
        coverage.read(0, 10, 10);
        assertEquals(100, coverage.events());
        coverage.read(0, 11, 11); // the marker of the transaction
        assertEquals(100, coverage.events());
    }

    @Test
    void whatIsSeenWhileAnotherWaitsComesNext() {
        coverage.seen(0, 100);
        coverage.read(0, 5, 10);
        coverage.seen(0, 200);
        coverage.read(0, 12, 20);
        assertEquals(100, coverage.covered(0));
        coverage.read(0, 20, 40);
        assertEquals(200, coverage.covered(0));
    }

    @Test
    void partitionsAddUp() {
        coverage.seen(0, 100);
        coverage.read(0, 10, 10);
        coverage.seen(3, 50);
        coverage.read(3, 4, 5);
        assertEquals(100, coverage.events());
        coverage.read(3, 5, 5);
        assertEquals(150, coverage.events());
    }

    @Test
    void aNewProcessGoesOnFromWhatWasCovered() {
        coverage.resume(0, 100);
        assertEquals(100, coverage.events());
        coverage.seen(0, 80); // read again after a crash
        coverage.read(0, 5, 5);
        assertEquals(100, coverage.events());
    }
}
