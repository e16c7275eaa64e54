/* Times a classifier sentence by sentence, on devices with nothing installed.

     compressor-runner onnxruntime|litert LIBRARY MODEL REQUEST RESULT

   REQUEST holds tokenised sentences and settings (devices/runners/native_request.py writes it), RESULT receives the
   JSON that the Python runner writes too, with every single time and without tokenisation, which is not done here.
   The method is the Python runner's: cold run, warm-up at each length until two windows agree, three settling runs,
   then every run of the order timed alone. */
#define _GNU_SOURCE
#include "runner.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Lets callgrind count the timed runs alone (benchmarks/studies/instructions.py); nothing outside valgrind. */
#if defined __x86_64__ && defined __has_include
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_STOP_INSTRUMENTATION
#endif

enum { SETTLING_RUNS = 3 };

static FILE *result;

static void json_text(const char *text) {
  fputc('"', result);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') fprintf(result, "\\%c", c);
    else if (c < 0x20) fprintf(result, "\\u%04x", c);
    else fputc(c, result);
  }
  fputc('"', result);
}

void fail(const char *type, const char *format, ...) {
  char message[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (result) {
    fprintf(result, "{\"error\": {\"type\": ");
    json_text(type);
    fprintf(result, ", \"message\": ");
    json_text(message);
    fprintf(result, "}}\n");
    fclose(result);
  }
  fprintf(stderr, "%s: %s\n", type, message);
  exit(1);
}

void *allocate(size_t bytes) {
  void *memory = calloc(1, bytes ? bytes : 1);
  if (!memory) fail("MemoryError", "no %zu bytes left", bytes);
  return memory;
}

void *open_library(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fail("ImportError", "%s", dlerror());
  return library;
}

void *find_symbol(void *library, const char *name) {
  void *symbol = dlsym(library, name);
  if (!symbol) fail("ImportError", "the runtime library has no %s: another version is needed", name);
  return symbol;
}

void write_row(const Request *request, const Sentence *sentence, const Input *input, void *row) {
  for (int i = 0; i < sentence->length; i++) {
    int64_t inside = i < sentence->tokens, value = 0;
    if (input->role == INPUT_IDS) value = inside ? sentence->ids[i] : request->pad_id;
    else if (input->role == ATTENTION_MASK) value = inside;
    else if (inside) value = sentence->types[i];
    if (input->bytes == 8) ((int64_t *)row)[i] = value;
    else ((int32_t *)row)[i] = (int32_t)value;
  }
}

/* ---- request ---------------------------------------------------------------------------------------------------- */

static int64_t *numbers(char *text, int count) {
  int64_t *values = allocate((size_t)count * sizeof *values);
  for (int i = 0; i < count; i++) {
    char *end;
    values[i] = strtoll(text, &end, 10);
    if (end == text) fail("ValueError", "the request holds %d numbers where %d are expected", i, count);
    text = end;
  }
  return values;
}

static void read_request(const char *path, Request *request) {
  FILE *file = fopen(path, "r");
  char *line = NULL;
  size_t room = 0;
  ssize_t size;
  int entry = -1, sentence = -1;
  if (!file) fail("FileNotFoundError", "%s: %s", path, strerror(errno));
  while ((size = getline(&line, &room, file)) > 0) {
    if (line[size - 1] == '\n') line[size - 1] = 0;
    char *value = strchr(line, ' ');
    if (!value) fail("ValueError", "a line of the request has no value: %.40s", line);
    *value++ = 0;
    if (!strcmp(line, "version")) {
      if (atoi(value) != 1) fail("ValueError", "request version %s; this runner knows 1", value);
    } else if (!strcmp(line, "threads")) request->threads = atoi(value);
    else if (!strcmp(line, "pad")) request->pad_id = atoi(value);
    else if (!strcmp(line, "logits")) request->wants_logits = atoi(value);
    else if (!strcmp(line, "as_written")) request->as_written = atoi(value);
    else if (!strcmp(line, "cpus")) request->cpus = strdup(value);
    else if (!strcmp(line, "label")) request->label = strdup(value);
    else if (!strcmp(line, "warmup")) {
      if (sscanf(value, "%d %d %lf %lf", &request->warm_min, &request->warm_max, &request->warm_ms,
                 &request->tolerance) != 4) fail("ValueError", "warmup needs four numbers: %s", value);
    } else if (!strcmp(line, "entries")) request->entry = allocate((size_t)(request->entries = atoi(value)) * sizeof(Entry));
    else if (!strcmp(line, "entry")) {
      if (++entry >= request->entries) fail("ValueError", "more entries than announced");
      request->entry[entry].key = strdup(value);
    } else if (!strcmp(line, "input")) {
      int role, bytes, at = 0;
      if (entry < 0 || sscanf(value, "%d %d %n", &role, &bytes, &at) != 2 || !at || role < 0 || role >= ROLES ||
          request->entry[entry].inputs == ROLES) fail("ValueError", "input: %s", value);
      Input *input = &request->entry[entry].input[request->entry[entry].inputs++];
      input->role = role, input->bytes = bytes, input->name = strdup(value + at);
    } else if (!strcmp(line, "sentences"))
      request->sentence = allocate((size_t)(request->sentences = atoi(value)) * sizeof(Sentence));
    else if (!strcmp(line, "sentence")) {
      if (++sentence >= request->sentences) fail("ValueError", "more sentences than announced");
      Sentence *s = &request->sentence[sentence];
      if (sscanf(value, "%d %d %d", &s->entry, &s->length, &s->tokens) != 3 || s->entry < 0 ||
          s->entry >= request->entries || s->tokens > s->length) fail("ValueError", "sentence: %s", value);
    } else if (!strcmp(line, "ids") && sentence >= 0)
      request->sentence[sentence].ids = numbers(value, request->sentence[sentence].tokens);
    else if (!strcmp(line, "types") && sentence >= 0)
      request->sentence[sentence].types = numbers(value, request->sentence[sentence].tokens);
    else if (!strcmp(line, "order")) {
      char *rest;
      request->runs = (int)strtol(value, &rest, 10);
      int64_t *order = numbers(rest, request->runs);
      request->order = allocate((size_t)request->runs * sizeof(int));
      for (int i = 0; i < request->runs; i++) {
        if (order[i] < 0 || order[i] >= request->sentences) fail("ValueError", "the order names no sentence");
        request->order[i] = (int)order[i];
      }
    } else fail("ValueError", "the request has an unknown line: %.40s", line);
  }
  free(line);
  fclose(file);
  if (sentence + 1 != request->sentences || !request->runs) fail("ValueError", "the request is not whole");
}

static void pin(const char *cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const char *at = cpus; *at;) {
    char *end;
    long first = strtol(at, &end, 10), last = first;
    if (end == at) fail("ValueError", "cpus: %s", cpus);
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++) CPU_SET((int)cpu, &set);
    at = *end ? end + 1 : end;
  }
  if (sched_setaffinity(0, sizeof set, &set)) fail("OSError", "cores %s cannot be used: %s", cpus, strerror(errno));
}

/* ---- timing ----------------------------------------------------------------------------------------------------- */

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC_RAW, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static double timed(const Backend *backend, void *call) {
  backend->fill(call);
  double started = now_ms();
  backend->run(call);
  double time = now_ms() - started;
  backend->done(call);
  return time;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median(const double *values, int count) {
  double sorted[count];
  memcpy(sorted, values, sizeof sorted);
  qsort(sorted, (size_t)count, sizeof *sorted, by_value);
  return count % 2 ? sorted[count / 2] : (sorted[count / 2 - 1] + sorted[count / 2]) / 2;
}

static int warm_up(const Backend *backend, void *call, const Request *request, double limit_ms) {
  int window = request->warm_min > 0 ? request->warm_min : 1, runs = 0;
  double *times = allocate((size_t)(request->warm_max + 1) * sizeof *times), end = now_ms() + limit_ms;
  while (runs < request->warm_max) {
    times[runs++] = timed(backend, call);
    if (runs < 2 * window) {
      if (runs >= window && now_ms() > end) break;
      continue;
    }
    double older = median(times + runs - 2 * window, window), newer = median(times + runs - window, window);
    double change = newer > older ? newer - older : older - newer;
    if (change <= request->tolerance * older || now_ms() > end) break;
  }
  free(times);
  return runs;
}

static double peak_memory_mb(void) {
  char line[256];
  long kilobytes = -1;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %ld", &kilobytes);
  if (file) fclose(file);
  return kilobytes < 0 ? -1 : (double)kilobytes * 1024 / 1e6;
}

static void column(const char *name, const Request *request, int (*value)(const Sentence *)) {
  fprintf(result, "\"%s\": [", name);
  for (int i = 0; i < request->runs; i++)
    fprintf(result, "%s%d", i ? ", " : "", value ? value(&request->sentence[request->order[i]]) : request->order[i]);
  fprintf(result, "], ");
}

static int tokens_of(const Sentence *s) { return s->tokens; }
static int length_of(const Sentence *s) { return s->length; }

int main(int count, char **words) {
  if (count != 6) {
    fprintf(stderr, "usage: %s onnxruntime|litert LIBRARY MODEL REQUEST RESULT\n", words[0]);
    return 2;
  }
  if (!(result = fopen(words[5], "w"))) {
    fprintf(stderr, "%s: %s\n", words[5], strerror(errno));
    return 2;
  }
  const Backend *backend = !strcmp(words[1], "onnxruntime") ? &onnxruntime_backend
                           : !strcmp(words[1], "litert")    ? &litert_backend
                                                            : NULL;
  if (!backend) fail("ValueError", "unknown runtime %s", words[1]);
  Request request = {.threads = 1};
  read_request(words[4], &request);
  if (request.cpus) pin(request.cpus);

  double started = now_ms();
  backend->load(words[2], words[3], &request);
  double load_ms = now_ms() - started;

  void **calls = allocate((size_t)request.sentences * sizeof *calls);
  for (int i = 0; i < request.sentences; i++) calls[i] = backend->prepare(&request.sentence[i]);
  double cold_ms = timed(backend, calls[request.order[0]]);

  int lengths = 0, warm_runs = 0;
  char *first = allocate((size_t)request.sentences);
  for (int i = 0; i < request.sentences; i++) {
    first[i] = 1;
    for (int k = 0; k < i; k++) first[i] &= request.sentence[k].length != request.sentence[i].length;
    lengths += first[i];
  }
  for (int i = 0; i < request.sentences; i++)
    if (first[i]) warm_runs += warm_up(backend, calls[i], &request, request.warm_ms / lengths);
  for (int i = 0; i < SETTLING_RUNS; i++) timed(backend, calls[request.order[i % request.runs]]);

  double *times = allocate((size_t)request.runs * sizeof *times);
  CALLGRIND_START_INSTRUMENTATION;
  for (int i = 0; i < request.runs; i++) times[i] = timed(backend, calls[request.order[i]]);
  CALLGRIND_STOP_INSTRUMENTATION;

  fprintf(result, "{\"schema_version\": 1, \"runtime\": ");
  json_text(request.label ? request.label : backend->name);
  fprintf(result, ", \"python\": \"none (native runner)\", \"threads\": %d, \"load_ms\": %.6f, \"cold_ms\": %.6f, ",
          request.threads, load_ms, cold_ms);
  fprintf(result, "\"warmup_runs\": %d, \"peak_memory_mb\": ", warm_runs);
  double memory = peak_memory_mb();
  if (memory < 0) fprintf(result, "null, ");
  else fprintf(result, "%.3f, ", memory);
  if (request.wants_logits) {
    fprintf(result, "\"logits\": [");
    for (int i = 0; i < request.sentences; i++) {
      size_t size;
      backend->fill(calls[i]);
      backend->run(calls[i]);
      const float *values = backend->logits(calls[i], &size);
      fprintf(result, "%s[", i ? ", " : "");
      for (size_t k = 0; k < size; k++) fprintf(result, "%s%.9g", k ? ", " : "", (double)values[k]);
      fprintf(result, "]");
      backend->done(calls[i]);
    }
    fprintf(result, "], ");
  }
  fprintf(result, "\"runs\": {");
  column("sentence", &request, NULL);
  column("tokens", &request, tokens_of);
  column("length", &request, length_of);
  fprintf(result, "\"tokenize_ms\": null, \"inference_ms\": [");
  for (int i = 0; i < request.runs; i++) fprintf(result, "%s%.6f", i ? ", " : "", times[i]);
  fprintf(result, "]}}\n");
  if (fclose(result)) {
    perror(words[5]);
    return 2;
  }
  return 0;
}
