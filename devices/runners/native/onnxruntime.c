/* ONNX Runtime through its C API, found in whatever library is given.

   The API is a table of functions whose order never changes, so that a program built against one version runs with any
   later one (onnxruntime_c_api.h asserts the positions of version 1). Only functions of version 1 are used here, by
   position, and no header is needed. */
#include "runner.h"

#include <stdlib.h>

enum {
  GET_ERROR_MESSAGE = 2, CREATE_ENV = 3, CREATE_SESSION = 7, RUN = 9, CREATE_SESSION_OPTIONS = 10,
  SET_OPTIMIZATION = 23, SET_INTRA_OP_THREADS = 24, SET_INTER_OP_THREADS = 25, OUTPUT_COUNT = 31, OUTPUT_NAME = 37,
  CREATE_TENSOR_WITH_DATA = 49, TENSOR_DATA = 51, ELEMENT_COUNT = 64, TENSOR_SHAPE = 65, CREATE_CPU_MEMORY_INFO = 69,
  DEFAULT_ALLOCATOR = 78, RELEASE_VALUE = 96, RELEASE_SHAPE = 99,
};
enum { INT32 = 6, INT64 = 7, WARNING = 2, ARENA = 1, DEFAULT_MEMORY = 0, API_VERSION = 1 };

typedef void *Handle;
typedef Handle Status;
typedef struct {
  void *const *(*get_api)(uint32_t version);
  const char *(*version)(void);
} ApiBase;
typedef struct {
  int inputs;
  const char *names[ROLES];
  Handle values[ROLES], outputs[MOST_OUTPUTS];
} Call;

static void *const *api;
static const Request *request;
static Handle session, memory;
static size_t outputs;
static char *output_names[MOST_OUTPUTS];

static void check(Status status, const char *what) {
  if (status) fail("OrtError", "%s: %s", what, ((const char *(*)(Status))api[GET_ERROR_MESSAGE])(status));
}

static void load(const char *library, const char *model, const Request *asked) {
  void *opened = open_library(library);
  const ApiBase *base = ((const ApiBase *(*)(void))find_symbol(opened, "OrtGetApiBase"))();
  Handle environment, options, allocator;
  if (!(api = base->get_api(API_VERSION))) fail("ImportError", "the runtime library offers no API version 1");
  static char name[64] = "onnxruntime ";
  for (int i = 12, k = 0; i < 63 && base->version()[k]; i++, k++) name[i] = base->version()[k];
  onnxruntime_backend.name = name;
  request = asked;
  check(((Status(*)(int, const char *, Handle *))api[CREATE_ENV])(WARNING, "compressor", &environment), "environment");
  check(((Status(*)(Handle *))api[CREATE_SESSION_OPTIONS])(&options), "options");
  check(((Status(*)(Handle, int))api[SET_INTRA_OP_THREADS])(options, request->threads), "threads");
  check(((Status(*)(Handle, int))api[SET_INTER_OP_THREADS])(options, 1), "threads");
  if (request->as_written) check(((Status(*)(Handle, int))api[SET_OPTIMIZATION])(options, 0), "optimization level");
  check(((Status(*)(Handle, const char *, Handle, Handle *))api[CREATE_SESSION])(environment, model, options, &session),
        "the model does not load");
  check(((Status(*)(Handle *))api[DEFAULT_ALLOCATOR])(&allocator), "allocator");
  check(((Status(*)(int, int, Handle *))api[CREATE_CPU_MEMORY_INFO])(ARENA, DEFAULT_MEMORY, &memory), "memory");
  check(((Status(*)(Handle, size_t *))api[OUTPUT_COUNT])(session, &outputs), "outputs");
  if (outputs > MOST_OUTPUTS) fail("ValueError", "the model has %zu outputs", outputs);
  for (size_t i = 0; i < outputs; i++)
    check(((Status(*)(Handle, size_t, Handle, char **))api[OUTPUT_NAME])(session, i, allocator, &output_names[i]),
          "output name");
}

static void *prepare(const Sentence *sentence) {
  const Entry *entry = &request->entry[sentence->entry];
  Call *call = allocate(sizeof *call);
  int64_t shape[2] = {1, sentence->length};
  call->inputs = entry->inputs;
  for (int i = 0; i < entry->inputs; i++) {
    const Input *input = &entry->input[i];
    size_t bytes = (size_t)sentence->length * (size_t)input->bytes;
    void *row = allocate(bytes);
    write_row(request, sentence, input, row);
    call->names[i] = input->name;
    check(((Status(*)(Handle, void *, size_t, const int64_t *, size_t, int, Handle *))api[CREATE_TENSOR_WITH_DATA])(
              memory, row, bytes, shape, 2, input->bytes == 8 ? INT64 : INT32, &call->values[i]),
          "input tensor");
  }
  return call;
}

static void fill(void *call) { (void)call; /* done once, in prepare */ }

static void run(void *prepared) {
  Call *call = prepared;
  check(((Status(*)(Handle, Handle, const char *const *, const Handle *, size_t, const char *const *, size_t,
                    Handle *))api[RUN])(session, NULL, call->names, call->values, (size_t)call->inputs,
                                        (const char *const *)output_names, outputs, call->outputs),
        "the model does not run");
}

static const float *logits(void *prepared, size_t *count) {
  Call *call = prepared;
  Handle shape;
  float *values;
  check(((Status(*)(Handle, void **))api[TENSOR_DATA])(call->outputs[0], (void **)&values), "output");
  check(((Status(*)(Handle, Handle *))api[TENSOR_SHAPE])(call->outputs[0], &shape), "output shape");
  check(((Status(*)(Handle, size_t *))api[ELEMENT_COUNT])(shape, count), "output size");
  ((void (*)(Handle))api[RELEASE_SHAPE])(shape);
  return values;
}

static void done(void *prepared) {
  Call *call = prepared;
  for (size_t i = 0; i < outputs; i++) {
    ((void (*)(Handle))api[RELEASE_VALUE])(call->outputs[i]);
    call->outputs[i] = NULL;
  }
}

Backend onnxruntime_backend = {"onnxruntime", load, prepare, fill, run, logits, done};
