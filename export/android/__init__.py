"""What an Android developer needs beside a TFLite artifact."""
