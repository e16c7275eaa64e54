/* What the parts of the native runner share: the request, and what a runtime has to offer. */
#ifndef COMPRESSOR_RUNNER_H
#define COMPRESSOR_RUNNER_H

#include <stddef.h>
#include <stdint.h>

enum { INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS, ROLES };
enum { MOST_OUTPUTS = 16 };

typedef struct {
  int role;
  int bytes; /* of one element: 4 or 8 */
  char *name;
} Input;

typedef struct { /* one signature of the file */
  char *key;
  int inputs;
  Input input[ROLES];
} Entry;

typedef struct {
  int entry, length, tokens;
  int64_t *ids, *types; /* one for each token */
} Sentence;

typedef struct {
  int threads, pad_id, wants_logits;
  int as_written; /* run the graph without the runtime's own rewriting */
  char *cpus, *label;
  int warm_min, warm_max;
  double warm_ms, tolerance;
  int entries, sentences, runs;
  Entry *entry;
  Sentence *sentence;
  int *order;
} Request;

typedef struct {
  const char *name; /* and version, known after load */
  void (*load)(const char *library, const char *model, const Request *request);
  void *(*prepare)(const Sentence *sentence); /* whatever one call needs */
  void (*fill)(void *call);                   /* untimed, just before run */
  void (*run)(void *call);                    /* timed */
  const float *(*logits)(void *call, size_t *count);
  void (*done)(void *call); /* untimed, after run */
} Backend;

extern Backend onnxruntime_backend, litert_backend;

/* Ends the process with a JSON error in the result file; printf style. */
void fail(const char *type, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));
void *allocate(size_t bytes);
void *open_library(const char *path);
void *find_symbol(void *library, const char *name);
/* Writes one input row, padded to the sentence's length. */
void write_row(const Request *request, const Sentence *sentence, const Input *input, void *row);

#endif
